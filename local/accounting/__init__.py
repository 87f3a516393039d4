"""The account of every message, shared by the demo, chaos runs and soak runs."""
