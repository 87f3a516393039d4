"""Chaos on the real local application: load, killing, and a total account of every message."""
