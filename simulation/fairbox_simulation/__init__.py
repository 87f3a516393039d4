"""The whole application in memory, under faults that a seed decides, against its guarantees."""
