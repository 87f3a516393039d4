"""Spark jobs over the archive: the history of every message."""
