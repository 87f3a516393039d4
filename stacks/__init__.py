"""The infrastructure: stacks wire what the components build."""
