"""Delivery: relay, visits, sweep, marking, counts, repair. No AWS in it; ports stand beside it."""
