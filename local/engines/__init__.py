"""The engines behind the local application: their installation, processes and addresses."""
