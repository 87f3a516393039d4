"""What happened to every message: Spark jobs over the archive."""
