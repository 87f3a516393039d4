"""What the clock starts: sweep, repair, retirement, counts."""
