"""Adapters to DynamoDB."""
