"""`make demo`: real payloads through the synthesised application, and an account at the end."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fairbox import Batches, Outbox
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from local.accounting.business import BUSINESS_TABLE, create_business_table
from local.accounting.meter import Meter
from local.accounting.queues import create_bus
from local.application import LocalApplication
from local.cloudformation.synthesis import synthesise
from local.demo import history, plan, unloaded
from local.demo.account import Summary, account
from local.demo.arrivals import Arrivals, QueueReader, WebhookSink
from local.demo.fanout import SUBSCRIPTION, FanOut, FanOutResult
from local.demo.producer import Producer
from local.engines.endpoints import dynamodb_client
from local.engines.payloads import load
from local.faults.proxy import FaultProxy
from local.workspace import LocalError, Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

STALLED_SECONDS: Final = 200.0
RECORDED_SECONDS: Final = 120.0
BUS: Final = "demo"
_COLUMNS: Final = (
    TextColumn("{task.description:<10}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
)


def main(arguments: list[str] | None = None) -> None:
    """Run the demo; exit 1 when anything is lost, altered, out of order or not recorded."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("-n", type=int, default=0, help="messages; by default each payload once")
    count = parser.parse_args(arguments).n
    if count < 0:
        parser.error("-n: expected a number from 1")
    console = Console()
    try:
        Demo(console, Workspace()).run(count)
    except LocalError as error:
        sys.exit(f"fairbox: {error}")


class Demo:
    """One run of the demo."""

    def __init__(self, console: Console, workspace: Workspace) -> None:
        self._console = console
        self._workspace = workspace
        self._arrivals = Arrivals()

    def run(self, count: int) -> None:
        """Start the application, publish, wait, account."""
        payloads = load()
        samples = list(plan.samples(payloads, count or len(payloads)))
        topics = plan.topics(sorted({kind for kind, _ in payloads}))
        self._say(f"{len(samples)} GitHub webhook payloads, {len(topics)} topics")
        assembly = synthesise(self._workspace)
        with ExitStack() as stack:
            meter, app = self._start(stack, assembly)
            outbox = self._outbox(app)
            subscriptions = self._subscribe(stack, app, outbox, topics)
            wanted: dict[str, frozenset[str]] = {t.name: frozenset() for t in topics}
            for subscription in subscriptions:
                wanted[subscription.topic] |= {subscription.name}
            producer = Producer(outbox, app.clients["dynamodb"], app.api_url)
            alone = self._one_by_one(app, outbox)
            meter.reset()

            self._flow(app, producer, samples, wanted)
            expected = {(ref.id, name) for ref in producer.sent for name in wanted[ref.topic]}
            recorded = self._wait_recorded(outbox, expected)
            ordered = frozenset(t.name for t in topics if t.ordering == "key")
            summary = account(producer.sent, wanted, ordered, self._arrivals.all(), meter)
            fan_out = self._fan_out(app, outbox, payloads)
            expected |= {(id_, SUBSCRIPTION) for id_ in fan_out.sent}
            recorded = self._wait_recorded(outbox, expected) and recorded
            problems = self._check(app, outbox, producer, recorded=recorded) + fan_out.problems()
            summary = replace(
                summary,
                unloaded_p50_ms=alone.p50_ms,
                batch_items=fan_out.items,
                batch_completions=fan_out.completions,
            )
            kept = history.keep(app, self._workspace.root / "demo")
        added = len(alone.sent) + len(producer.sent) + len(fan_out.sent)
        problems += self._look_back(kept, added)
        self._finish(summary, problems)

    def _start(self, stack: ExitStack, assembly: Path) -> tuple[Meter, LocalApplication]:
        self._say("starting DynamoDB Local, the other services and the functions")
        meter = Meter()

        def metered(endpoint: str) -> str:
            proxy = FaultProxy(endpoint, rng=random.Random(0), observe=meter.observe)  # noqa: S311
            proxy.start()
            stack.callback(proxy.stop)
            self._engine = proxy.endpoint
            return proxy.endpoint

        app = stack.enter_context(
            LocalApplication(assembly, workspace=self._workspace, proxy=metered)
        )
        meter.watch(app.env["FAIRBOX_OUTBOX_TABLE"], app.env["FAIRBOX_DELIVERIES_TABLE"])
        create_business_table(app.clients["dynamodb"])
        return meter, app

    def _client(self, app: LocalApplication) -> Any:
        """Return a DynamoDB client whose calls are metered."""
        return dynamodb_client(app.env, endpoint=self._engine)

    def _outbox(self, app: LocalApplication) -> Outbox:
        return Outbox(
            self._client(app),
            table=app.env["FAIRBOX_OUTBOX_TABLE"],
            deliveries_table=app.env["FAIRBOX_DELIVERIES_TABLE"],
        )

    def _fan_out(
        self, app: LocalApplication, outbox: Outbox, payloads: list[tuple[str, dict[str, Any]]]
    ) -> FanOutResult:
        """Run the fan-out under a progress bar of its own."""
        batches = Batches(
            self._client(app),
            table=app.env["FAIRBOX_BATCHES_TABLE"],
            outbox_table=app.env["FAIRBOX_OUTBOX_TABLE"],
            deliveries_table=app.env["FAIRBOX_DELIVERIES_TABLE"],
        )
        with Progress(*_COLUMNS, console=self._console) as progress:
            bar = progress.add_task("acked", total=None)

            def advance(done: int, total: int) -> None:
                progress.update(bar, completed=done, total=total)

            result = FanOut(app, outbox, batches, advance).run(payloads)
        self._say(
            f"a batch of {result.items} payloads of {result.organisation}: "
            f"{result.crashed} consumers crashed, {result.completions} completion message"
        )
        return result

    def _subscribe(
        self, stack: ExitStack, app: LocalApplication, outbox: Outbox, topics: list[Any]
    ) -> list[Any]:
        sqs = app.clients["sqs"]
        queue = sqs.create_queue(QueueName="demo-queue")["QueueUrl"]
        tap = sqs.create_queue(QueueName="demo-events")["QueueUrl"]
        create_bus(app.clients, BUS, tap)
        sink = WebhookSink(self._arrivals)
        for part in (
            sink,
            QueueReader(sqs, queue, "queue", self._arrivals),
            QueueReader(sqs, tap, "events", self._arrivals),
        ):
            part.start()
            stack.callback(part.stop)
        for topic in topics:
            outbox.create_topic(topic)
        subscriptions = plan.subscriptions(
            topics, queue=f"sqs:{queue}", events=f"events:{BUS}", webhook=sink.url
        )
        outbox.add_subscriptions(subscriptions)
        return subscriptions

    def _one_by_one(self, app: LocalApplication, outbox: Outbox) -> unloaded.Unloaded:
        """Measure messages that wait for nothing; what follows is a storm on a few cores."""
        with self._console.status("one message at a time"):
            measured = unloaded.measure(app.clients["sqs"], outbox)
        self._say(
            f"one message at a time: {measured.p50_ms:.0f} ms from the call to the queue, at the"
            f" median of {unloaded.COUNT}"
        )
        # their bookkeeping is not the storm's
        self._wait_recorded(outbox, {(id_, unloaded.SUBSCRIPTION) for id_ in measured.sent})
        return measured

    def _flow(
        self,
        app: LocalApplication,
        producer: Producer,
        samples: list[plan.Sample],
        wanted: Mapping[str, frozenset[str]],
    ) -> None:
        """Publish while messages arrive; kill the relay's process once."""
        total = sum(len(wanted[s.topic]) for s in samples)
        with Progress(*_COLUMNS, console=self._console) as progress:
            published = progress.add_task("published", total=len(samples))
            arrived = progress.add_task("delivered", total=total)
            failures: list[BaseException] = []

            def publish() -> None:
                try:
                    producer.publish(samples, lambda: progress.advance(published))
                except BaseException as error:  # noqa: BLE001 - told to the main thread
                    failures.append(error)

            thread = threading.Thread(target=publish, daemon=True)
            thread.start()
            killed = False
            seen, moved = 0, time.monotonic()
            while seen < total and time.monotonic() - moved < STALLED_SECONDS and not failures:
                time.sleep(0.1)
                now = self._arrivals.distinct()
                if now != seen:
                    seen, moved = now, time.monotonic()
                    progress.update(arrived, completed=seen)
                if not killed and seen > total // 4:
                    killed = self._kill_relay(app)
            thread.join(STALLED_SECONDS)
        if failures:
            raise failures[0]

    def _kill_relay(self, app: LocalApplication) -> bool:
        relay = next(name for name in app.invoker.functions() if name.startswith("Relay"))
        killed = app.invoker.kill(relay)
        if killed:
            self._say("killed the relay's process, with what it had in hand")
        return bool(killed)

    def _wait_recorded(self, outbox: Outbox, expected: set[tuple[str, str]]) -> bool:
        """Wait until the ledger has these deliveries, as (message id, subscription)."""
        end = time.monotonic() + RECORDED_SECONDS
        with self._console.status("waiting for the ledger"):
            while time.monotonic() < end:
                if expected <= {(d.id, d.subscription) for d in outbox.delivered()}:
                    return True
                time.sleep(1)
        return False

    def _look_back(self, kept: history.History, added: int) -> list[str]:
        """Run the pipeline over the run's own archive; return the violations that it finds."""
        with self._console.status("history, reconcile and report of the archive, with Spark"):
            figures = history.analyse(kept)
        events, found = figures["history"]["events"], figures["reconcile"]
        self._say(
            f"the archive has {events} events: {found['added']} messages added,"
            f" {found['delivered']} delivered, {found['lost']} lost"
        )
        self._say(f"the report is {history.page_of(figures)}")
        return history.problems(figures, added=added)

    @staticmethod
    def _check(
        app: LocalApplication, outbox: Outbox, producer: Producer, *, recorded: bool
    ) -> list[str]:
        problems = [] if recorded else ["the ledger lacks deliveries"]
        left = outbox.outstanding_count()
        if left:
            problems.append(f"{left} messages are still outstanding")
        rows = app.clients["dynamodb"].scan(TableName=BUSINESS_TABLE, Select="COUNT")["Count"]
        transacted = sum(not sample.through_api for sample in producer.sent.values())
        if rows != transacted:
            problems.append(f"{transacted} transactions left {rows} business rows")
        return problems

    def _finish(self, summary: Summary, problems: list[str]) -> None:
        path = self._workspace.root / "demo.json"
        path.write_text(json.dumps(summary.as_dict(), indent=2) + "\n")
        table = Table("figure", "value", title="make demo")
        for name, value in summary.as_dict().items():
            table.add_row(name, f"{value:,}")
        self._console.print(table)
        self._say(f"written to {os.path.relpath(path)}")
        if summary.lost:
            problems.append(f"{summary.lost} deliveries are lost or altered")
        if summary.out_of_order:
            problems.append(f"{summary.out_of_order} deliveries are out of order")
        if problems:
            sys.exit("fairbox: " + "; ".join(problems))
        self._say("every payload arrived byte for byte, in order where asked, and is recorded")

    def _say(self, text: str) -> None:
        self._console.print(f"fairbox: {text}", highlight=False)


if __name__ == "__main__":
    main()
