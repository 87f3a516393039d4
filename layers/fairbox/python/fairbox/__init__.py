"""Fairbox: a sharded transactional outbox on DynamoDB."""
