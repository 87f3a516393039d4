"""The parts of the feeds' functions: without those of delivery, which take 150 ms to import."""

from __future__ import annotations

import logging
import random
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from fairbox.aws.clients import make_client
from fairbox.aws.token_keys import SecretKeys
from fairbox.dynamodb.calls import Calls
from fairbox.feeds.requests import Requests
from fairbox.model.clock import SystemClock
from fairbox.settings import AUDIENCE_SHARDS, FEEDS_SECRET, FEEDS_TABLE, Settings
from fairbox.tables.feed_connections import FeedConnections

if TYPE_CHECKING:
    from collections.abc import Callable


class FeedsApplication:
    """The parts of one function's process, each made when it is first asked for.

    Args:
        settings: the environment.
        client: makes boto3 clients by service name.
    """

    def __init__(self, settings: Settings, client: Callable[[str], Any] = make_client) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self.rng: random.Random = random.SystemRandom()
        self._client = client

    @classmethod
    def from_env(cls) -> FeedsApplication:
        """Return the application that the environment describes."""
        logging.getLogger().setLevel(logging.INFO)
        return cls(Settings.from_env())

    @cached_property
    def token_keys(self) -> SecretKeys:
        """The keys that sign clients' tokens."""
        secret = self.settings.required(FEEDS_SECRET)
        return SecretKeys(partial(self._client, "secretsmanager"), secret, self.clock)

    @cached_property
    def connections(self) -> FeedConnections:
        """The rows of connections."""
        shards = self.settings.whole(AUDIENCE_SHARDS, 4)
        return FeedConnections(self._calls, self.settings.required(FEEDS_TABLE), shards)

    @cached_property
    def requests(self) -> Requests:
        """The answers to clients."""
        return Requests.over(self._calls, self.settings.required(FEEDS_TABLE), self.connections)

    @cached_property
    def _calls(self) -> Calls:
        return Calls(self._client("dynamodb"), self.clock, self.rng)
