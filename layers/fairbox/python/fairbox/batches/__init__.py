"""Batches: know, exactly once, when a fan-out of any size is finished."""
