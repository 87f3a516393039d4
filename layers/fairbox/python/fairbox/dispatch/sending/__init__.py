"""Sending: what goes next, to whom, and how much."""
