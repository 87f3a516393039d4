"""Soak runs: the local application at a steady rate, under overload, and after it."""
