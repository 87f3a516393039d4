"""The synthesised application: its templates, resolved, and the resources they declare."""
