"""The parts of the feeds' functions: without those of delivery, which take 150 ms to import."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

from fairbox.aws.feed_sockets import ANSWER_SECONDS, FeedSockets
from fairbox.aws.token_keys import SecretKeys
from fairbox.feeds.asking import Asking
from fairbox.feeds.feed_requests import Polling, Requests
from fairbox.feeds.ringing import Ringing
from fairbox.observability.metrics import Metrics
from fairbox.runtime.function_process import ProcessParts
from fairbox.settings import (
    AUDIENCE_SHARDS,
    FEEDS_QUEUE_URL,
    FEEDS_SECRET,
    FEEDS_TABLE,
    FEEDS_URL,
    HELD_POLLS,
    PUSH_RATE,
)
from fairbox.tables.calls import Calls
from fairbox.tables.feed_connections import FeedConnections, FeedLeases, FeedPolls
from fairbox.tables.feed_rows import FeedRows
from fairbox.tables.feed_topics import FeedTopics

if TYPE_CHECKING:
    from fairbox.feeds.pushing import Pushing


class FeedsApplication(ProcessParts):
    """The parts of a function of feeds."""

    @cached_property
    def token_keys(self) -> SecretKeys:
        """The keys that sign clients' tokens."""
        secret = self.settings.required(FEEDS_SECRET)
        return SecretKeys(partial(self.client, "secretsmanager"), secret, self.clock)

    @cached_property
    def connections(self) -> FeedConnections:
        """The rows of connections."""
        shards = self.settings.whole(AUDIENCE_SHARDS, 4)
        return FeedConnections(self._calls, self.settings.required(FEEDS_TABLE), shards)

    @cached_property
    def requests(self) -> Requests:
        """The answers to clients that have a connection."""
        return Requests(self._asking, self.connections)

    @cached_property
    def polling(self) -> Polling:
        """The answers to clients that have none."""
        polls = FeedPolls(self._calls, self.settings.required(FEEDS_TABLE))
        most = self.settings.whole(HELD_POLLS, 20)
        return Polling(self.token_keys, self._asking, polls, self.clock, most)

    @cached_property
    def metrics(self) -> Metrics:
        """The metrics."""
        return Metrics(self.clock, settings=self.settings)

    @cached_property
    def ringing(self) -> Ringing:
        """The doorbells of published messages."""
        leases = FeedLeases(self._calls, self.settings.required(FEEDS_TABLE))
        queue = self.settings.required(FEEDS_QUEUE_URL)
        return Ringing(leases, self.client("sqs"), queue)

    @cached_property
    def pushing(self) -> Pushing:
        """The frames to clients."""
        # imported where they are used: the functions that clients wait for do without the cycles
        from fairbox.feeds.frames import Posting  # noqa: PLC0415
        from fairbox.feeds.pushing import Pushing  # noqa: PLC0415

        table, url = self.settings.required(FEEDS_TABLE), self.settings.required(FEEDS_URL)
        client = self.client(
            "apigatewaymanagementapi",
            # clients connect to `wss://`; calls to their sockets go to `https://` of the same stage
            endpoint_url=url.replace("ws", "http", 1),
            # one socket that hangs must not use up the visit of all others
            read_timeout=ANSWER_SECONDS,
        )
        topics, feeds = FeedTopics(self._calls, table), FeedRows(self._calls, table)
        # each shard has one visit at a time, so all of them keep the rate together
        rate = self.settings.whole(PUSH_RATE, 5000) / self.settings.whole(AUDIENCE_SHARDS, 4)
        posting = Posting(FeedSockets(client), self.clock, self.rng, rate)
        return Pushing(feeds, topics, self.connections, posting=posting, ringing=self.ringing)

    @cached_property
    def _asking(self) -> Asking:
        return Asking(self._calls, self.settings.required(FEEDS_TABLE), self.connections)

    @cached_property
    def _calls(self) -> Calls:
        return Calls(self.client("dynamodb"), self.clock, self.rng)
