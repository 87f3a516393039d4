"""The library's clients that verbs call, over boto3 or a test's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import fairbox
from fairbox.model.clock import Clock, SystemClock
from fairbox.model.ids import new_id
from fairbox.settings import DEPLOYED, Settings

if TYPE_CHECKING:
    from fairbox import Batches, Feeds, Outbox, Queue


class Clients:
    """The library's clients over the tables that the environment names, each opened when needed.

    Args:
        endpoint_url: of DynamoDB, in place of the SDK's own.
    """

    def __init__(self, endpoint_url: str | None = None) -> None:
        self.endpoint_url = endpoint_url
        self._made: dict[tuple[str, str | None], Any] = {}
        self.clock: Clock = SystemClock()

    @cached_property
    def outbox(self) -> Outbox:
        """The outbox."""
        return fairbox.Outbox.from_env(client=self.client)

    @cached_property
    def queue(self) -> Queue:
        """The queue."""
        return fairbox.Queue.over(self.outbox)

    @cached_property
    def batches(self) -> Batches:
        """The batches."""
        return fairbox.Batches.from_env(client=self.client)

    @cached_property
    def feeds(self) -> Feeds:
        """The feeds."""
        return fairbox.Feeds.from_env(client=self.client)

    @cached_property
    def settings(self) -> Settings:
        """The environment; with `FAIRBOX_STACK`, and the rest of the variables from there."""
        # imported where it is used: `fairbox --help` does without the SDK
        from fairbox.aws.deployed_settings import settings_with  # noqa: PLC0415

        return settings_with(DEPLOYED, None, self.client)

    def new_id(self, after: str | None = None) -> str:
        """Return a new UUIDv7, above another one."""
        return new_id(after)

    def client(self, service: str, region: str | None = None) -> Any:
        """Return boto3's client of a service, made when it is first asked for."""
        # imported where it is used: `fairbox --help` does without the SDK
        from fairbox.sdk.clients import make_client  # noqa: PLC0415

        if (service, region) not in self._made:
            url = self.endpoint_url if service == "dynamodb" else None
            self._made[service, region] = make_client(service, endpoint_url=url, region=region)
        return self._made[service, region]


Opener = Callable[[str | None], Clients]
"""Opens the clients, with a URL of DynamoDB in place of the SDK's own."""
