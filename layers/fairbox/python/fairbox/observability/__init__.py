"""Metrics, and what deliveries come to in them."""
