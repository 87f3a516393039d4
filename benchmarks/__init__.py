"""Benchmarks, which print figures and write them as JSON; none asserts a time."""
