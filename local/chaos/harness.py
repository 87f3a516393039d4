"""The harness of a chaos run: an application of its own and the processes of the load."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from botocore.config import Config
from fairbox import Outbox, Subscription

from local.accounting.business import create_business_table
from local.accounting.topics import ROUTES, Route
from local.application import LocalApplication
from local.chaos.destinations import address, make_queues
from local.chaos.load_processes import LoadProcess
from local.cloudformation.identities import QUEUE
from local.engines.endpoints import dynamodb_client
from local.triggers import attach
from local.triggers.attach import TriggerSettings
from local.workspace import REPOSITORY, LocalError, Workspace, choose_port

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

HOOK_SECONDS: Final = 3.0  # of one call; a hanging receiver takes longer
START_SECONDS: Final = 600.0
FINISH_SECONDS: Final = 600.0
BOUNDED: Final = Config(
    connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 1}
)  # the library repeats
MARKER: Final = "chaos"
"""A file that marks a folder of a run, which may be emptied."""
VISIBILITY_SECONDS: Final = 40
"""Visibility timeout of the application's own queues, in place of 60 and 90: longer than any
function may run, and short, because a killed visit blocks its group for this long."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the load: `rate` is messages a second of all producers, `seed` seeds all chance.

    `flapping`: webhook receivers fail at times. `speed` is the factor by which schedules run
    faster, `repeat_share` the share of trigger batches that are delivered again.
    """

    seed: str = "1"
    rate: float = 20.0
    producers: int = 2
    flapping: bool = True
    speed: float = 10.0
    repeat_share: float = 0.05
    durable: bool = True


@dataclass
class Harness:
    """Runs an application under load while the `with` block lasts.

    Args:
        assembly: the synthesised application.
        folder: for all files of the run; emptied first.
        settings: of the load.

    Attributes after the start: `app`; `outbox` (a client of its own); `processes` by name.
    """

    assembly: Path
    folder: Path
    settings: Settings
    engines: Workspace = field(default_factory=Workspace)
    app: LocalApplication = field(init=False)
    outbox: Outbox = field(init=False)
    processes: dict[str, LoadProcess] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack, repr=False)

    def __enter__(self) -> Self:
        """Start the application, topics, subscriptions, and all processes except producers."""
        with ExitStack() as stack:
            workspace = self._workspace()
            self.app = stack.enter_context(
                LocalApplication(self.assembly, **self._options(workspace))
            )
            stack.callback(self._end)
            self._tables()
            self._shorten_queues()
            self._start_takers()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process that was started; ignore interrupts meanwhile."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self._stack.close()

    @property
    def journals(self) -> Path:
        """Folder of the processes' records: `producers`, `arrivals`, `completions`."""
        return self.folder / "journals"

    def _workspace(self) -> Workspace:
        """Return a workspace of the run's own that uses the installed engines.

        Raises:
            LocalError: the folder holds something other than an earlier run.
        """
        marker = self.folder / MARKER
        if self.folder.exists() and any(self.folder.iterdir()) and not marker.exists():
            raise LocalError(f"{self.folder} is no folder of a run: name an empty one, or none")
        shutil.rmtree(self.folder, ignore_errors=True)
        workspace = Workspace(root=self.folder)
        workspace.folder(self.folder)
        marker.touch()
        workspace.engines.symlink_to(self.engines.engines.resolve())
        return workspace

    def _options(self, workspace: Workspace) -> dict[str, Any]:
        triggers = TriggerSettings(
            repeat_share=self.settings.repeat_share, speed=self.settings.speed
        )
        return {
            "workspace": workspace,
            "durable": self.folder / "dynamodb" if self.settings.durable else False,
            "attach": partial(attach, settings=triggers),
            "rng": random.Random(f"{self.settings.seed}-triggers"),  # noqa: S311 - no secret
        }

    def _tables(self) -> None:
        env = self.app.env
        self.outbox = Outbox(
            dynamodb_client(env, endpoint=self.app.dynamodb.endpoint, config=BOUNDED),
            table=env["FAIRBOX_OUTBOX_TABLE"],
            deliveries_table=env["FAIRBOX_DELIVERIES_TABLE"],
            batches_table=env["FAIRBOX_BATCHES_TABLE"],
        )
        create_business_table(self.app.clients["dynamodb"])

    def _shorten_queues(self) -> None:
        sqs = self.app.clients["sqs"]
        for name in self.app.template.of_type(QUEUE):
            sqs.set_queue_attributes(
                QueueUrl=self.app.template.ref(name),
                Attributes={"VisibilityTimeout": str(VISIBILITY_SECONDS)},
            )

    def _start_takers(self) -> None:
        queues = make_queues(self.app.clients)
        port = choose_port(0, "receiver")
        for route in ROUTES:
            self.outbox.create_topic(route.topic)
        self.outbox.add_subscriptions(
            Subscription(route.name, name, address(route, name, port, queues), timeout=HOOK_SECONDS)
            for route in ROUTES
            for name in route.subscriptions
        )
        self._add_receiver(port)
        self._add_reader(queues)
        for route in ROUTES:
            for number in range(route.consumers):
                self._add_consumer(route, number)

    def _add_receiver(self, port: int) -> None:
        def command(life: int) -> Sequence[str]:
            well = [] if self.settings.flapping else ["--well"]
            journal = self.journals / "arrivals" / "receiver.jsonl"
            seed = f"{self.settings.seed}-receiver-{life}"
            return ["--port", str(port), "--journal", str(journal), "--seed", seed, *well]

        self.add("receiver", "receiver", "local.chaos.receiver", command)

    def _add_reader(self, queues: dict[str, str]) -> None:
        given = json.dumps({url: taker for taker, url in queues.items()})
        journal = self.journals / "arrivals" / "reader.jsonl"
        arguments = ["--queues", given, "--journal", str(journal)]
        self.add("reader", "reader", "local.chaos.reader", lambda _: arguments)

    def _add_consumer(self, route: Route, number: int) -> None:
        name = f"consumer-{route.name}-{number}"

        def command(life: int) -> Sequence[str]:
            journal = self.journals / "arrivals" / f"{name}.jsonl"
            seed = f"{self.settings.seed}-{name}-{life}"
            return [route.name, "--journal", str(journal), "--seed", seed]

        self.add(name, "consumer", "local.chaos.consumer", command)

    def produce(self) -> None:
        """Start the producers."""
        for number in range(self.settings.producers):
            self._add_producer(f"p{number}")

    def _add_producer(self, name: str) -> None:
        journal = self.journals / "producers" / f"{name}.jsonl"
        rate = self.settings.rate / self.settings.producers
        rest = ["--journal", str(journal), "--rate", str(rate), "--api", self.app.api_url]
        rest += ["--seed", f"{self.settings.seed}-{name}"]
        self.add(name, "producer", "local.chaos.producer", lambda life: [name, str(life), *rest])

    def add(
        self, name: str, kind: str, module: str, arguments: Callable[[int], Sequence[str]]
    ) -> None:
        """Start a process of the load: a module with arguments for each of its lives."""
        process = LoadProcess(
            name=name,
            kind=kind,
            command=lambda life: [sys.executable, "-m", module, *arguments(life)],
            environment={**os.environ, **self.app.env},
            log_file=self.folder / "log" / f"{name}.log",
            folder=REPOSITORY,
        )
        self.processes[name] = process
        process.start()

    def of_kind(self, *kinds: str) -> list[LoadProcess]:
        """Return the processes of some kinds."""
        return [process for process in self.processes.values() if process.kind in kinds]

    def heal(self) -> None:
        """Resume or restart every process and heal the receivers."""
        for process in self.processes.values():
            process.signal(signal.SIGCONT)
            process.start()
        for process in self.of_kind("receiver"):
            process.signal(signal.SIGUSR1)

    def resume(self) -> None:
        """Close the circuits, as an operator does after a destination has recovered."""
        for route in ROUTES:
            for name in route.subscriptions:
                self.outbox.resume_subscription(route.name, name)

    def stop_producing(self) -> list[str]:
        """Let producers finish their work; return those that did not.

        A producer that has just been killed first completes the work of its earlier life.
        """
        processes = self.of_kind("producer")
        end = time.monotonic() + FINISH_SECONDS
        while not all(self._begun(process) for process in processes) and time.monotonic() < end:
            time.sleep(0.2)
        return [h.name for h in processes if not h.finish(seconds=FINISH_SECONDS)]

    def _begun(self, producer: LoadProcess) -> bool:
        """Whether the current life of a producer handles signals."""
        journal = self.journals / "producers" / f"{producer.name}.jsonl"
        begun = f'"t":"begin","life":"{producer.life}"'.encode()
        return journal.exists() and begun in journal.read_bytes()

    def crashed(self) -> list[str]:
        """Return the processes of this run that have crashed at least once."""
        return [h.name for h in self.processes.values() if h.crashed]

    def outstanding(self) -> dict[str, int]:
        """Return the number of outstanding messages by topic; topics without any are left out."""
        counts = {r.name: self.outbox.outstanding_count(r.name) for r in ROUTES}
        return {name: count for name, count in counts.items() if count}

    def repair(self) -> None:
        """Run the hourly repair now, and wait for it.

        Raises:
            LocalError: it failed.
        """
        name = next(n for n in self.app.invoker.functions() if n.startswith("Repair"))
        result = self.app.invoker.invoke(name, b"{}")
        if result.function_error is not None:
            raise LocalError(f"repair failed: {result.payload.decode(errors='replace')}")

    def _end(self) -> None:
        for process in self.processes.values():
            process.kill()
