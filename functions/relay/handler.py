"""Names the handler, which is in the library: a release changes no function's code."""

from fairbox.functions.relay import handler

__all__ = ["handler"]
