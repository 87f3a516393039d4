"""Delivery: relay, visits, sweep, marking, counts and repair, over ports and without AWS."""
