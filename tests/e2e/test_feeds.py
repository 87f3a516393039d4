"""A client of feeds over the running application's WebSocket API."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from fairbox import Feed, FeedClient, Feeds, Message, Subscription, Topic
from fairbox.settings import Settings
from fairbox_cdk.node import bin_folder
from rich.console import Console

from local.demo.feeds.__main__ import FeedsDemo
from local.engines.payloads import load
from local.workspace import LOOPBACK
from tests.repository.test_docs import ROOT, snippets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from tests.e2e.stage import Stage

    Positions = dict[str, int | None]
    Update = tuple[int | None, list[int]]
    Follow = Callable[[str, Positions, str], AbstractContextManager[Iterator[Update]]]

TUTORIAL = ROOT / "docs/tutorial/first-feed.md"
FOLLOW = ROOT / "clients/js/test/follow.ts"
pytestmark = [pytest.mark.engine, pytest.mark.e2e]


def token_of(stage: Stage, topic: str) -> str:
    """Return the token that the HTTP API gives a service."""
    body = json.dumps({"user": "u7", "allow": [topic], "ttl": 300})
    with closing(HTTPConnection(urlsplit(stage.app.api_url).netloc, timeout=60)) as connection:
        connection.request("POST", "/feed-tokens", body, {"content-type": "application/json"})
        return str(json.load(connection.getresponse())["token"])


@contextmanager
def python_client(url: str, positions: Positions, token: str) -> Iterator[Iterator[Update]]:
    with FeedClient(url, positions, token) as client:
        yield (
            (update.position, [message.number for message in update.messages])
            for update in client.updates(120)  # it asks again after eight minutes
        )


@contextmanager
def javascript_client(
    url: str, positions: Positions, token: str, *poll: str
) -> Iterator[Iterator[Update]]:
    command = [str(bin_folder() / "node"), str(FOLLOW), url, token, json.dumps(positions), *poll]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            updates = map(json.loads, process.stdout)
            yield ((u["position"], [m["number"] for m in u["messages"]]) for u in updates)
        finally:
            process.kill()


def polling_client(
    api: str, positions: Positions, token: str
) -> AbstractContextManager[Iterator[Update]]:
    """Follow where no WebSocket opens."""
    return javascript_client(f"ws://{LOOPBACK}:1", positions, token, f"{api}/poll")


@pytest.mark.guarantee("feed-accounted")
@pytest.mark.parametrize("follow", [python_client, javascript_client, polling_client])
def test_a_client_gets_each_message_once_though_connections_and_functions_die(
    stage: Stage, follow: Follow
) -> None:
    env, name = stage.app.env, f"e2e-{follow.__name__}"
    feeds = Feeds.from_env(Settings(env), client=stage.app.clients.__getitem__)
    feeds.create(Feed(name, "ring"))
    stage.outbox.create_topic(Topic(name))
    stage.outbox.add_subscription(Subscription(name, "screens", f"feed:{name}"))
    url = stage.app.api_url if follow is polling_client else env["FAIRBOX_FEEDS_URL"]
    invoker = stage.app.invoker
    answering = [n for n in invoker.functions() if "FeedsConnect" in n or "FeedsPoll" in n]
    got: list[int] = []
    position: int | None = 0
    for begin in (1, 5):
        numbers = feeds.publish_many(name, "k", [b"1", b"2", b"3"])
        assert numbers == list(range(begin, begin + 3))
        for pid in (pid for one in answering for pid in invoker.pool(one).pids()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        token = token_of(stage, f"{name}/k")
        with follow(url, {f"{name}/k": position}, token) as updates:
            got += next(updates)[1]
            # so this one is pushed, or polled
            stage.outbox.add(Message(topic=name, body=b"4", partition_key="k"))
            position, last = next(updates)
            got += last
    assert got == [*range(1, 9)]


def test_the_snippets_of_the_tutorial_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in stage.app.env.items():
        monkeypatch.setenv(name, value)
    Feeds.from_env().create(Feed("trades", "ring", size=8, history=3))
    namespace: dict[str, Any] = {}
    for code, _ in snippets_of(TUTORIAL):
        exec(compile(code, TUTORIAL, "exec"), namespace)  # noqa: S102 - the document's own code
    assert namespace["message"].body == {"price": 64015}


def test_the_demo_accounts_for_a_pane_that_stops_reading(stage: Stage) -> None:
    stage.forget_feeds()
    console = Console(file=io.StringIO(), record=True, width=100)
    assert FeedsDemo(stage.app, console).run(load()[:100], wait=0, pause=0) == []
    text = console.export_text()
    figures = {
        name.strip(): [int(left), int(right)]
        for name, left, right in re.findall(r"│ (.+?) +│ +(\d+) +│ +(\d+) +│", text)
    }
    lost = figures["tape: told as lost"]
    assert lost[1] >= 50 - 32, figures
    assert [a + b for a, b in zip(figures["tape: received"], lost, strict=True)] == [100, 100]
    assert figures["inbox: refused, as it was full"][1] >= 2
    assert figures["inbox: received"] == figures["inbox: accepted"]
    assert "refused: 'inbox/right' is full" in text


def follow(url: str, token: str, ends: Mapping[str, int], began: threading.Barrier) -> bool:
    """Follow topics to their ends; return whether received and told are all, each once."""
    seen, got = dict.fromkeys(ends, 0), list[tuple[str, int]]()
    with FeedClient(url, dict.fromkeys(ends, 0), token) as client:
        for update in client.updates(400):  # it asks again after eight minutes
            if not got:
                began.wait(120)
            seen[update.topic] += len(update.messages) + update.lost
            got += [(update.topic, message.number) for message in update.messages]
            if client.positions == ends:
                break
    return seen == ends and len(got) == len({*got})


@pytest.mark.guarantee("feed-accounted")
@pytest.mark.extended
def test_a_hundred_clients_account_for_all_messages_though_pushing_is_killed(stage: Stage) -> None:
    env, invoker = stage.app.env, stage.app.invoker
    feeds = Feeds.from_env(Settings(env), client=stage.app.clients.__getitem__)
    feeds.create(Feed("e2e-ring", "ring"))
    feeds.create(Feed("e2e-snapshot"))
    ends = {"e2e-ring/k": 100, "e2e-snapshot/k": 100}
    token = feeds.token("u7", list(ends), ttl=300)
    [visit] = [name for name in invoker.functions() if "FeedsVisit" in name]

    def publish(body: bytes) -> None:
        for feed in ("e2e-ring", "e2e-snapshot"):
            feeds.publish(feed, "k", body)

    publish(b"1")
    began = threading.Barrier(101)
    with ThreadPoolExecutor(100) as pool:
        clients = [
            pool.submit(follow, env["FAIRBOX_FEEDS_URL"], token, ends, began) for _ in range(100)
        ]
        began.wait(120)
        for n in range(2, 101):
            publish(b"%d" % n)
            if n % 20 == 0:
                for pid in invoker.pool(visit).pids():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
    assert [client.result() for client in clients] == [True] * 100
