"""The demo: real webhook payloads through the synthesised application."""
