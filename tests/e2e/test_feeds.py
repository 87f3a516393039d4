"""A client of feeds over the running application's WebSocket API."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from fairbox import Feed, FeedClient, Feeds
from fairbox.settings import Settings

if TYPE_CHECKING:
    from tests.e2e.stage import Stage

pytestmark = [pytest.mark.engine, pytest.mark.e2e]


def test_a_client_gets_each_message_once_though_connections_and_functions_die(
    stage: Stage,
) -> None:
    env = stage.app.env
    feeds = Feeds.from_env(Settings(env), client=stage.app.clients.__getitem__)
    feeds.create(Feed("e2e-inbox", "private"))
    [connect] = [name for name in stage.app.invoker.functions() if "FeedsConnect" in name]
    got: list[int] = []
    positions: dict[str, int | None] = {"e2e-inbox/u7": None}
    for begin in (1, 4):
        numbers = feeds.publish_many("e2e-inbox", "u7", [b"1", b"2", b"3"])
        assert numbers == list(range(begin, begin + 3))
        for pid in stage.app.invoker.pool(connect).pids():
            os.kill(pid, signal.SIGKILL)
        token = feeds.token("u7", ["e2e-inbox/u7"], ttl=300)
        with FeedClient(env["FAIRBOX_FEEDS_URL"], positions, token) as client:
            got += [message.number for message in next(iter(client)).messages]
            positions = client.positions
    assert got == [1, 2, 3, 4, 5, 6]
