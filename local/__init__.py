"""Runs the synthesised application on this machine."""
