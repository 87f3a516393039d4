"""Use cases of the queue: receiving, holding, giving back and acknowledging pulled messages."""
