"""Invariants of batches over their stored records."""
