"""Fuzzing: the HTTP API by its own document, and what reads texts that strangers wrote."""
