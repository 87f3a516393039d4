"""Workers over a queue, with heartbeats, bounded prefetch and a graceful stop."""
