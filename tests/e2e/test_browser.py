"""The client of feeds in a page of Chromium: reloads, networks, sleep, and tokens that end."""

from __future__ import annotations

import io
import re
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import boto3
import psutil
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from fairbox import Feed, Feeds
from fairbox.settings import Settings
from fairbox.tables.feed_connections import TOPICS
from fairbox.testing import ManualClock
from playwright.sync_api import sync_playwright
from rich.console import Console
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from local.demo.feeds.__main__ import FeedsDemo
from local.demo.feeds.site import client_module
from local.engines.payloads import load
from local.gateway.web_server import WebServer
from local.workspace import choose_port
from tests.e2e.stage import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page
    from starlette.requests import Request

    from tests.e2e.stage import Stage

pytestmark = [pytest.mark.engine, pytest.mark.e2e]
PAGE = """<!doctype html><meta charset="utf-8"><title>Feeds</title><link rel="icon" href="data:,">
<script type="module">
import { FeedClient } from "./client.js";
window.updates = [];
window.tokens = 0;
window.client = new FeedClient({
  url: "URL",
  poll: "POLL",
  positions: { "TOPIC": Number(localStorage.getItem("TOPIC")) },
  token: async () => { window.tokens += 1; return (await fetch("/token")).text(); },
  onUpdate: ({ messages, lost }) => window.updates.push([messages.map((m) => m.number), lost]),
  onPosition: (topic, position) => localStorage.setItem(topic, position),
});
</script>"""


class Site:
    """A service of a user: its page, its tokens, and a ring of eight messages.

    Attributes:
        url: to which the page connects.
        tokens: those that it gives first; then it makes them.
        told: what the page has written on its console.
    """

    def __init__(self, stage: Stage, name: str) -> None:
        self.env, self.topic = stage.app.env, f"{name}/k"
        self.stage, self.module = stage, client_module()
        self.feeds = Feeds.from_env(Settings(self.env), client=stage.app.clients.__getitem__)
        self.feeds.create(Feed(name, "ring", size=8))
        self.url = self.env["FAIRBOX_FEEDS_URL"]
        self.tokens: list[str] = []
        self.told: list[str] = []

    def get(self, path: str) -> tuple[str, bytes]:
        if path == "/client.js":
            return "text/javascript", self.module
        if path == "/token":
            made = self.tokens.pop(0) if self.tokens else self.feeds.token("u7", [self.topic])
            return "text/plain", made.encode()
        page = PAGE.replace("URL", self.url).replace("TOPIC", self.topic)
        page = page.replace("POLL", f"{self.stage.app.api_url}/poll")
        return "text/html", page.encode()

    def publish(self, count: int = 1, size: int = 1) -> int:
        """Publish so many messages, one after the other; return the number of the last."""
        feed, key = self.topic.split("/")
        return [self.feeds.publish(feed, key, b"1" * size) for _ in range(count)][-1]

    def connections(self) -> list[str]:
        """Return the ids of the connections that follow the topic, as the application has them."""
        pages = self.stage.dynamodb.get_paginator("scan").paginate(
            TableName=self.env["FAIRBOX_FEEDS_TABLE"], ConsistentRead=True
        )
        items = [item for page in pages for item in page["Items"]]
        return [
            item["sk"]["S"] for item in items if self.topic in item.get(TOPICS, {}).get("SS", ())
        ]

    def disconnect(self) -> None:
        """Close all connections, as API Gateway does after two hours."""
        url = self.env["FAIRBOX_FEEDS_URL"].replace("ws", "http", 1)
        client = boto3.client(
            "apigatewaymanagementapi",
            endpoint_url=url,
            region_name=self.env["AWS_REGION"],
            config=Config(signature_version=UNSIGNED),
        )
        for id_ in self.connections():
            client.delete_connection(ConnectionId=id_)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    assert path, "chromium is missing: apt-get install chromium"
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


@pytest.fixture
def site(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(stage, request.node.name.replace("_", "-"))
    yield site
    eventually(lambda: not site.connections(), failing=lambda: "the page is still connected")


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    async def answer(request: Request) -> Response:
        kind, body = site.get(request.url.path)
        return Response(body, media_type=kind)

    app = Starlette(routes=[Route("/{path:path}", answer)])
    server = WebServer(app, port=choose_port(0, "site"), name="site")
    server.start()
    with browser.new_context() as context:
        page = context.new_page()
        page.on("console", lambda message: site.told.append(message.text))
        page.on("pageerror", lambda error: site.told.append(str(error)))
        page.goto(server.url)
        yield page
    server.stop()


def took(page: Page, site: Site, last: int) -> tuple[list[int], int]:
    """Wait until a page has its topic up to a number; return what it got since, and its loss."""
    page.wait_for_function(
        "([topic, last]) => Number(localStorage.getItem(topic)) >= last",
        arg=[site.topic, last],
        timeout=60_000,
    )
    updates = page.evaluate("window.updates.splice(0)")
    return [n for numbers, _ in updates for n in numbers], sum(lost for _, lost in updates)


def test_a_reload_resumes(page: Page, site: Site) -> None:
    assert took(page, site, site.publish(3)) == ([1, 2, 3], 0)
    page.reload()
    assert took(page, site, site.publish(2)) == ([4, 5], 0)
    assert site.told == []


def test_it_goes_on_when_the_network_is_back(page: Page, site: Site) -> None:
    took(page, site, site.publish())
    page.context.set_offline(True)
    site.disconnect()
    last = site.publish(3)
    page.context.set_offline(False)
    assert took(page, site, last) == ([2, 3, 4], 0)
    assert site.told == []


def test_it_polls_another_origin_where_web_sockets_are_blocked(page: Page, site: Site) -> None:
    took(page, site, site.publish())
    site.url = "ws://127.0.0.1:1"
    page.reload()
    for last in (2, 3):
        assert took(page, site, site.publish()) == ([last], 0)
    assert site.connections() == []


def test_a_tab_that_was_stopped_is_told_its_loss(page: Page, site: Site) -> None:
    took(page, site, site.publish())
    children = psutil.Process().children(recursive=True)
    parts = [child for child in children if "--type=" in "".join(child.cmdline())]
    assert parts
    for part in parts:
        part.send_signal(signal.SIGSTOP)
    try:
        while site.connections():  # it is put out when all buffers are full
            filled = site.publish(size=80_000)
            assert filled < 500
        last = site.publish(20)
    finally:
        for part in parts:
            part.send_signal(signal.SIGCONT)
    numbers, lost = took(page, site, last)
    assert numbers == sorted({*numbers})
    assert lost >= 12
    assert len(numbers) + lost == last - 1


def test_a_token_that_has_ended_is_replaced(page: Page, site: Site) -> None:
    took(page, site, site.publish())
    clock = ManualClock(time.time() - 600)
    past = Feeds(site.stage.dynamodb, table="", clock=clock, keys=site.feeds._keys)
    site.tokens.append(past.token("u7", [site.topic]))
    site.disconnect()
    assert took(page, site, site.publish()) == ([2], 0)
    assert page.evaluate("window.tokens") == 3


def test_the_demo_s_page_is_both_panes(browser: Browser, stage: Stage) -> None:
    stage.forget_feeds()
    console, told = Console(file=io.StringIO(), record=True, width=100), list[str]()

    def address() -> re.Match[str] | None:
        return re.search(r"open (http://\S+) ", console.export_text(clear=False))

    with ThreadPoolExecutor(1) as pool, browser.new_context() as context:
        demo = pool.submit(FeedsDemo(stage.app, console).run, load()[:100], wait=60, pause=0)
        eventually(lambda: address() is not None, failing=lambda: demo)
        page = context.new_page()
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        found = address()
        url = found[1] if found else ""
        page.goto(url)
        assert context.request.get(url).status == 409
        assert demo.result(120) == []
        assert page.locator(".good").all_text_contents() == ["all accounted for"] * 2
        right = page.locator("section").nth(1)
        numbers = [right.locator(f".{name}").inner_text() for name in ("received", "missed")]
    assert sum(map(int, numbers)) == 100
    assert int(numbers[1]) >= 50 - 32
    assert told == []
