"""Delivery of ordered shards."""
