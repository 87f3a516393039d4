"""Runs the synthesised application on this machine: engines, functions, routes and triggers."""
