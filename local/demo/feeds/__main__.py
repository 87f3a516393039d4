"""`make demo-feeds`: GitHub's events on two screens, one of which stops reading, accounted for."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fairbox import Feed, FeedFull, Feeds
from fairbox.settings import Settings
from fairbox_cdk.node import bin_folder
from rich.console import Console
from rich.table import Table

from local.application import LocalApplication
from local.cloudformation.synthesis import synthesise
from local.demo.feeds.site import FOLDER, Site
from local.demo.plan import key_of
from local.engines.payloads import load
from local.gateway.web_server import WebServer
from local.workspace import LocalError, Workspace, choose_port

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PANES: Final = ("left", "right")  # the right one stops reading
TAPE: Final = Feed("tape", "ring", size=32)
COUNTS: Final = Feed("counts")
INBOX: Final = Feed("inbox", "private", limit=8, window=16)
STAGE: Final = Feed("stage")
TO_INBOX: Final = 5  # each fifth event goes to both inboxes
WAIT_SECONDS: Final = 20.0
PATIENCE: Final = 60.0


def main(arguments: list[str] | None = None) -> None:
    """Run the demo; exit 1 if a message is neither received nor told as lost."""
    parser = argparse.ArgumentParser(prog="make demo-feeds", description=__doc__)
    default = WAIT_SECONDS if sys.stdout.isatty() else 0.0
    parser.add_argument("--wait", type=float, default=default, help="seconds, for a browser")
    wait = parser.parse_args(arguments).wait
    console, workspace = Console(), Workspace()
    try:
        events = load()
        assembly = synthesise(workspace)
        console.print("fairbox: starting DynamoDB Local, the other services and the functions")
        with LocalApplication(assembly, workspace=workspace) as app:
            problems = FeedsDemo(app, console).run(events, wait=wait, pause=0.08)
    except LocalError as error:
        sys.exit(f"fairbox: {error}")
    if problems:
        sys.exit("fairbox: " + "; ".join(problems))


class FeedsDemo:
    """One run of the demo."""

    def __init__(self, app: LocalApplication, console: Console) -> None:
        self._app = app
        self._console = console
        self._feeds = Feeds.from_env(Settings(app.env), client=app.clients.__getitem__)
        self._kinds: Counter[str] = Counter()
        self._accepted = dict.fromkeys(PANES, 0)
        self._refused = dict.fromkeys(PANES, 0)

    def run(
        self, events: Sequence[tuple[str, dict[str, Any]]], *, wait: float, pause: float
    ) -> list[str]:
        """Publish events while two panes read; return what they do not account for.

        Args:
            events: kind and payload of each.
            wait: seconds to wait for a browser; without one, Node runs the panes.
            pause: seconds after each event.
        """
        for feed in (TAPE, COUNTS, INBOX, STAGE):
            self._feeds.create(feed)
        counts = {f"counts/{kind}": None for kind, _ in events}
        panes = {name: {"tape/github": 0, f"inbox/{name}": None, **counts} for name in PANES}
        urls = {"url": self._app.feeds_url, "poll": f"{self._app.api_url}/poll"}
        site = Site({**urls, "events": len(events), "panes": panes}, self._token)
        server = WebServer(site.app, port=choose_port(0, "demo"), name="demo")
        with ExitStack() as stack:
            server.start()
            stack.callback(server.stop)
            self._open(stack, site, server.url, wait)
            self._publish(site, events, pause)
            self._wait(lambda: all(self._is_level(site, name) for name in PANES))
        return self._account(site)

    def _token(self, pane: str) -> str:
        allow = ["tape/*", "counts/*", "stage/*", f"inbox/{pane}"]
        return self._feeds.token(pane, allow, ttl=300)

    def _open(self, stack: ExitStack, site: Site, url: str, wait: float) -> None:
        """Wait for a browser, or let Node run the panes."""
        if wait:
            self._say(f"open {url} in a browser within {wait:g} s, or watch without one")
        if site.opened.wait(wait):
            self._say("the browser shows both panes")
        else:
            site.opened.set()
            self._say("no browser: both panes are read without a page")
            program = str(FOLDER / "headless.mjs")
            command = [str(bin_folder() / "node"), "--no-warnings", program, url]
            node = stack.enter_context(subprocess.Popen(command))
            stack.callback(node.kill)
        self._wait(lambda: len(site.seen) == len(PANES))
        if len(site.seen) < len(PANES):
            raise LocalError("the panes do not begin: the browser's console may say why")

    def _publish(
        self, site: Site, events: Sequence[tuple[str, dict[str, Any]]], pause: float
    ) -> None:
        """Publish all events; the right pane reads none of the half in between."""
        quarter, stopped = len(events) // 4, False
        for number, (kind, payload) in enumerate(events):
            if number in (quarter, 3 * quarter):
                stopped = not stopped
                self._say("the right pane stops reading" if stopped else "the right pane reads on")
                self._tell(stopped=stopped)
                self._wait(partial(self._has_turned, site, stopped))
            self._kinds[kind] += 1
            line = {"event": kind, "action": payload.get("action"), "of": key_of(payload)}
            body = json.dumps(line).encode()
            self._feeds.publish("tape", "github", body)
            self._feeds.publish("counts", kind, str(self._kinds[kind]).encode())
            if number % TO_INBOX == 0:
                for name in PANES:
                    self._deliver(name, body)
                self._tell(stopped=stopped)
            time.sleep(pause)
        self._tell(stopped=False, done=True)

    def _deliver(self, pane: str, body: bytes) -> None:
        try:
            self._feeds.publish("inbox", pane, body)
            self._accepted[pane] += 1
        except FeedFull as error:
            if not self._refused[pane]:
                self._say(f"refused: {error}")
            self._refused[pane] += 1

    def _tell(self, *, stopped: bool, done: bool = False) -> None:
        """Tell the panes what is done so far."""
        inboxes = {"accepted": self._accepted, "refused": self._refused}
        stage = {"stopped": stopped, "done": done, "published": self._kinds.total(), **inboxes}
        self._feeds.publish("stage", "now", json.dumps(stage).encode())

    @staticmethod
    def _wait(until: Callable[[], bool]) -> None:
        """Wait until the panes have told this, or for a minute: the account shows what lacks."""
        end = time.monotonic() + PATIENCE
        while not until() and time.monotonic() < end:
            time.sleep(0.05)

    @staticmethod
    def _has_turned(site: Site, stopped: bool) -> bool:
        return site.seen.get("right", {}).get("stopped") is stopped

    def _is_level(self, site: Site, pane: str) -> bool:
        total, seen = self._kinds.total(), site.seen.get(pane, {})
        expected = {"inbox": self._accepted[pane], "counted": total}
        shown = {name: seen.get(name) for name in expected}
        return shown == expected and seen["received"] + seen["lost"] == total

    def _account(self, site: Site) -> list[str]:
        """Print what each pane has seen; return which do not add up."""

        def told(figure: str) -> dict[str, int | None]:
            return {name: site.seen.get(name, {}).get(figure) for name in PANES}

        rows: dict[str, dict[str, int | None]] = {
            "tape: published": dict.fromkeys(PANES, self._kinds.total()),
            "tape: received": told("received"),
            "tape: told as lost": told("lost"),
            "inbox: accepted": {**self._accepted},
            "inbox: refused, as it was full": {**self._refused},
            "inbox: received": told("inbox"),
            "events in the counts by kind": told("counted"),
        }
        table = Table("", *PANES, title="make demo-feeds")
        for title, figures in rows.items():
            table.add_row(title, *(str(figures[name]) for name in PANES))
        self._console.print(table)
        problems = [
            f"the {name} pane has not accounted for all messages"
            for name in PANES
            if not self._is_level(site, name)
        ]
        if not problems:
            self._say("each message was received or told as lost, and no inbox lost any")
        return problems

    def _say(self, text: str) -> None:
        self._console.print(f"fairbox: {text}", highlight=False)


if __name__ == "__main__":
    main()
