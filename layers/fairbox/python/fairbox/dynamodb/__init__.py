"""The DynamoDB adapters: the only code, beside the destinations, that talks to the AWS SDK."""
