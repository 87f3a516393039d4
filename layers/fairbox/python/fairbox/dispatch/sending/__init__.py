"""Sending: circuits, rates, and the calls to destinations."""
