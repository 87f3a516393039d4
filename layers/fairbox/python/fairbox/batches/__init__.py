"""Batches: find out, exactly once, that a fan-out of any size is finished."""
