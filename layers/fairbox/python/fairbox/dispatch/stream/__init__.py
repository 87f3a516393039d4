"""The readers of the outbox's stream: marking, and the events of messages."""
