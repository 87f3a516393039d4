"""Rows of the tables, one module a row: its value, its item and back, its reads and writes.

Only these modules spell names of attributes, expressions and transactions. Names are short because
DynamoDB bills them with every item. Items are DynamoDB's wire dicts (`{"S": ...}`), as the
low-level client and stream images have them.
"""
