"""Chaos runs of the local application: load, faults, and an account of every message."""
