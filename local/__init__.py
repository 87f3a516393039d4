"""The synthesised application on this machine."""
