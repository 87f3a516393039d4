"""The public clients over DynamoDB: Outbox, Queue, PartitionedQueue and Batches."""
