"""Many small batches in memory, among faults, kills and each other's calls."""
