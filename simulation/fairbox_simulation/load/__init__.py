"""Load simulation: calls take simulated time, and invocations overlap in it."""
