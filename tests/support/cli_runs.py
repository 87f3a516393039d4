"""Runs of the command line in this process, over the application in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairbox.cli.command_line import app
from fairbox.cli.library_clients import Clients
from fairbox.errors import Unavailable
from fairbox.settings import Settings
from fairbox.testing import ManualClock
from fairbox.testing.application import MemoryApplication
from typer.testing import CliRunner

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = "0199c82c-c000-7611-a29f-000000000000"


class Meanwhile(ManualClock):
    """A clock on which something happens while somebody waits.

    Attributes:
        events: each is called in one sleep, in their order.
        sleeps: how long each sleep was, in seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Callable[[], object]] = []
        self.sleeps: list[float] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.sleeps.append(seconds)
        if self.events:
            self.events.pop(0)()


class MemoryClients(Clients):
    """The clients of an application in memory, and of services that a test gives."""

    def __init__(
        self,
        application: MemoryApplication,
        given: dict[str, Any],
        endpoint_url: str | None = None,
    ) -> None:
        super().__init__(endpoint_url)
        self.application, self.given = application, given
        self.outbox, self.queue = application.outbox, application.queue
        self.batches, self.feeds = application.batches, application.feeds
        self.clock = application.clock
        self.settings = Settings(
            {
                "FAIRBOX_OUTBOX_TABLE": "outbox",
                "FAIRBOX_DELIVERIES_TABLE": "deliveries",
                "FAIRBOX_BATCHES_TABLE": "batches",
            }
        )

    def client(self, service: str, region: str | None = None) -> Any:
        if service not in self.given:
            raise Unavailable(service, "there is none in memory")
        return self.given[service]

    def new_id(self, after: str | None = None) -> str:
        return self.application.ids.next(after)


@dataclass(frozen=True)
class Run:
    """The output of a run, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object that it printed."""
        return json.loads(self.out)

    @property
    def objects(self) -> list[Any]:
        """The objects that it printed, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def problem(self) -> Any:
        """The problem on standard error."""
        return json.loads(self.err)


class Cli:
    """Runs `fairbox`."""

    def __init__(self) -> None:
        self.clock = Meanwhile()
        self.application = MemoryApplication(clock=self.clock)
        self.urls: list[str | None] = []
        self.clients: dict[str, Any] = {}

    def open(self, endpoint_url: str | None) -> MemoryClients:
        self.urls.append(endpoint_url)
        return MemoryClients(self.application, self.clients, endpoint_url)

    def __call__(self, *arguments: str, stdin: str | None = None) -> Run:
        result = CliRunner().invoke(
            app, arguments, input=stdin, obj=self.open, catch_exceptions=False
        )
        return Run(result.exit_code, result.stdout, result.stderr)

    def ok(self, *arguments: str, stdin: str | None = None) -> Run:
        """Run what must succeed."""
        run = self(*arguments, stdin=stdin)
        assert run.code == 0, run.err
        return run

    def opened(self, count: int = 0, *, group_size: int = 7168) -> str:
        """Return a new batch with so many items."""
        batch = self.application.batches.open().id
        if count:
            self.application.batches.add(batch, count, request_id="r", group_size=group_size)
        return batch

    def stored(self) -> list[Any]:
        """Return every item of every table."""
        engine = self.application.engine
        return [engine.items(table) for table in ("outbox", "deliveries", "batches")]
