"""Rows of tables, one module a row: its value, its item, and the code that reads and writes it."""
