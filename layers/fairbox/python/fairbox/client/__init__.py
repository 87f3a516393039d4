"""What users hold: Outbox, Queue, PartitionedQueue, Batches, each over DynamoDB."""
