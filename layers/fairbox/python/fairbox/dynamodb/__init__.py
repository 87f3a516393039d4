"""The adapters of DynamoDB: every call, expression and transaction is written here."""
