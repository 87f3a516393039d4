"""What stacks are put together from: one function, its triggers, its permissions, its alarms."""
