"""Values and rules without I/O: messages, topics, shards, epochs, ids."""
