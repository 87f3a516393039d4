"""Fault injection between the functions and the database."""
