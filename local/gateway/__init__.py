"""The HTTP API: routes, limits, and the servers that answer."""
