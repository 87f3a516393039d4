"""Lambda functions as processes of this machine."""
