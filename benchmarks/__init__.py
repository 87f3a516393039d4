"""Benchmarks: they print figures and write them as JSON; nothing asserts a time."""
