"""Components of the stacks: a function, its triggers, its permissions, its alarms."""
