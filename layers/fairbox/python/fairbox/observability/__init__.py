"""Metrics, and the figures of a delivery in them."""
