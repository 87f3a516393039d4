"""Canary: each quarter of an hour, messages through everything that costs nothing to try."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, Final

from fairbox.client.queue import Queue
from fairbox.model.ids import IdGenerator
from fairbox.runtime.function_application import Application
from fairbox.runtime.function_process import ends_in_time, make_at_start
from fairbox.settings import SMOKE_PREFIX
from fairbox.smoke.resources import SmokeResources
from fairbox.smoke.run import Smoke

logger = logging.getLogger("fairbox")

KINDS: Final = ("sqs", "topic")
SECONDS: Final = 180


class SmokeTestFailed(RuntimeError):
    """Some steps failed; the message names them."""


@cache
def application() -> Application:
    """Return this process's application."""
    return Application.from_env()


@ends_in_time(application)
def handler(_event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Run the smoke test; topics and queue are kept for the next run.

    Raises:
        SmokeTestFailed: a step failed, which raises the alarm on the function's errors.
    """
    app = application()
    prefix = app.settings.required(SMOKE_PREFIX)
    run = Smoke(
        app.outbox,
        Queue.over(app.outbox),
        app.batches,
        SmokeResources(app.client, prefix, app.clock),
        app.clock,
        new_id=IdGenerator(app.clock).next,
        run="canary",
        kinds=KINDS,
        seconds=SECONDS,
        # deleting topics takes a minute, for which the function would be paid
        keep=True,
    )

    steps = list(run.steps())
    logger.info("the canary ran", extra={"steps": [step.fields() for step in steps]})

    failed = [f"{s.name}: {s.detail}" for s in steps if s.status == "failed"]
    if failed:
        raise SmokeTestFailed("; ".join(failed))

    return {step.name: step.seconds for step in steps}


make_at_start(lambda: application().outbox)
