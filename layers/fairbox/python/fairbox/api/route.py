"""A route of the HTTP API, its answer, and the objects that every route works with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from fairbox.api.models import NoQuery
from fairbox.api.publish_routes import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import BaseModel

    from fairbox.api.request import Request
    from fairbox.client.batches import Batches
    from fairbox.client.feeds import Feeds
    from fairbox.client.outbox import Outbox
    from fairbox.client.queue import Queue
    from fairbox.model.clock import Clock
    from fairbox.model.ids import IdGenerator


class Api:
    """The outbox, the queue, the batches and the feeds that requests are answered from.

    Args:
        outbox: the outbox.
        ids: makes message ids.
        clock: the time.
        batches: opens the batches, when a request first needs them.
        feeds: opens the feeds, likewise; it returns None where there are none.
    """

    def __init__(
        self,
        outbox: Outbox,
        ids: IdGenerator,
        clock: Clock,
        batches: Callable[[], Batches],
        feeds: Callable[[], Feeds | None] = lambda: None,
    ) -> None:
        self.outbox = outbox
        self.clock = clock
        self.publisher = Publisher(outbox, ids)
        self._open_batches = batches
        self._open_feeds = feeds

    @cached_property
    def batches(self) -> Batches:
        """The batches."""
        return self._open_batches()

    @cached_property
    def feeds(self) -> Feeds | None:
        """The feeds; None: there are none."""
        return self._open_feeds()

    @cached_property
    def queue(self) -> Queue:
        """The queue over the same tables."""
        # imported where it is used: no other request pays for it
        from fairbox.client.queue import Queue  # noqa: PLC0415

        return Queue.over(self.outbox)


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, body and headers of an answer; a text is JSON already, None is no body."""

    status: int
    body: BaseModel | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Route:
    """The requests of one method and path, and the function that answers them.

    Attributes:
        method, path: `{name}` stands for one part of the path, `{name+}` for the rest of it.
        endpoint: answers; its name is the operation's in the OpenAPI document.
        query: the model of its parameters.
    """

    method: str
    path: str
    endpoint: Callable[[Api, Request], Answer]
    query: type[BaseModel] = NoQuery

    @property
    def rule(self) -> str:
        """The path as a regular expression without groups."""
        path = re.sub(r"\{\w+\}", "[^/]+", self.path.replace(".", r"\."))
        return re.sub(r"\{\w+\+\}", ".+", path)

    def params(self, path: str) -> dict[str, str]:
        """Return the path's parameters by name."""
        pattern = re.sub(r"\{(\w+)\+\}", r"(?P<\1>.+)", self.path.replace(".", r"\."))
        match = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern), path, re.DOTALL)
        return match.groupdict() if match else {}

    def answer(self, api: Api, request: Request) -> Answer:
        """Answer a request whose parameters are checked first.

        Raises:
            FairboxError: it is refused, and nothing is done.
        """
        # endpoints with parameters read them themselves, in their own order of refusals
        if self.query is NoQuery:
            request.parameters(NoQuery)
        return self.endpoint(api, request)
