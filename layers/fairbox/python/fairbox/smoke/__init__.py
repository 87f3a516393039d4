"""The smoke test of a deployment: real messages, through everything, to queues of its own."""
