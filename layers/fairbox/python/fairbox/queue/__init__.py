"""Use cases of the queue: receive, extend, give back and acknowledge pulled messages."""
