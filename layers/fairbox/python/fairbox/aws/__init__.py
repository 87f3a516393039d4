"""Adapters for SQS, S3 and Firehose."""
