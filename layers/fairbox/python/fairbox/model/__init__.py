"""What the outbox is made of: messages, topics, shards, and the rules over them. No I/O."""
