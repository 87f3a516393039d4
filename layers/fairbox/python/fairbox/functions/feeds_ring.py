"""Feeds ring: send doorbells for what was published to feeds."""

from __future__ import annotations

from functools import cache
from typing import Any

from fairbox.runtime.feed_application import FeedsApplication
from fairbox.runtime.function_process import ends_in_time, make_at_start


@cache
def application() -> FeedsApplication:
    """Return this process's application."""
    return FeedsApplication.from_env()


@ends_in_time(application)
def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Ring for the heads that a batch of stream records shows; after an error they come again."""
    application().ringing.ring(event["Records"])
    return {"batchItemFailures": []}


make_at_start(lambda: application().ringing)
