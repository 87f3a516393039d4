"""The routes of a resize: another number of shards for a topic, and how far it has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fairbox.api.base_models import In as Input
from fairbox.api.base_models import Milliseconds, Whole
from fairbox.api.base_models import Out as Output
from fairbox.api.route import Answer, Route
from fairbox.model.epochs import MAX_SHARDS
from fairbox.model.messages import check_topic

if TYPE_CHECKING:
    from fairbox.api.api_context import Api
    from fairbox.api.request import Request


class ResizeIn(Input):
    """The shards that a topic is to have."""

    shards: Whole = Field(ge=1, le=MAX_SHARDS)


class ResizeOut(Output):
    """The newest epoch of a topic, as a resize left it."""

    topic: str
    epoch: int = Field(description="Its number, which refs of its messages name.")
    shards: int
    before: int = Field(description="Shards of the epoch before it.")
    begins_at: Milliseconds = Field(
        description="Messages whose ids are of this time or later go to it. Milliseconds since 1970"
        " UTC."
    )
    changed: bool = Field(description="Whether this request announced it.")


class EpochStatusOut(Output):
    """The state of an epoch and the messages in it, counted from the stream."""

    number: int
    shards: int
    since: Milliseconds
    phase: Literal["announced", "current", "draining", "closed"] = Field(
        description="`closed`: found empty; it takes no messages, and leaves the list."
    )
    ready: int
    later: int
    dead: int


class Epochs(Output):
    """The epochs of a topic, oldest first."""

    epochs: list[EpochStatusOut]


def resize_topic(api: Api, request: Request) -> Answer:
    """Give a topic another number of shards, from a minute on, while messages flow."""
    topic = check_topic(request.params["topic"])
    result = api.outbox.resize(topic, request.model(ResizeIn).shards)
    epoch = result.epoch

    shown = ResizeOut(
        topic=topic,
        epoch=epoch.number,
        shards=epoch.shards,
        before=result.before,
        begins_at=epoch.since,
        changed=result.changed,
    )
    return Answer(202, shown)


def list_epochs(api: Api, request: Request) -> Answer:
    """List a topic's epochs, oldest first, with what lies in each."""
    statuses = api.outbox.epochs(check_topic(request.params["topic"]))
    shown = [
        EpochStatusOut(
            number=status.epoch.number,
            shards=status.epoch.shards,
            since=status.epoch.since,
            phase=status.phase,
            ready=status.ready,
            later=status.later,
            dead=status.dead,
        )
        for status in statuses
    ]

    return Answer(200, Epochs(epochs=shown))


RESIZE_ROUTES = (
    Route("POST", "/topics/{topic}/resize", resize_topic),
    Route("GET", "/topics/{topic}/epochs", list_epochs),
)
