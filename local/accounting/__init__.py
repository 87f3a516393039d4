"""The account of every message, shared by the demo and chaos runs."""
