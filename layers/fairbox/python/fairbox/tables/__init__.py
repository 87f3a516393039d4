"""Rows of tables, one module a row: its value, its item, and what reads and writes it."""
