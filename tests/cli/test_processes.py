"""The command line as real processes, over DynamoDB Local."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from fairbox import Batches
from fairbox.tables.definitions import batches_definition, table_definitions

pytestmark = pytest.mark.engine

FAIRBOX = Path(sys.executable).with_name("fairbox")
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_DEFAULT_REGION": "us-east-1",
}
SECONDS = 60


@dataclass
class World:
    """Tables of their own, and processes over them."""

    endpoint: str
    prefix: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            **CREDENTIALS,
            "PATH": os.environ["PATH"],
            "FAIRBOX_OUTBOX_TABLE": f"{self.prefix}-outbox",
            "FAIRBOX_DELIVERIES_TABLE": f"{self.prefix}-deliveries",
            "FAIRBOX_BATCHES_TABLE": f"{self.prefix}-batches",
        }

    def command(self, *arguments: str) -> list[str]:
        return [str(FAIRBOX), *arguments, "--endpoint-url", self.endpoint]

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def json(self, *arguments: str, stdin: str = "") -> Any:
        done = self.run(*arguments, "--json", stdin=stdin)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )

    @property
    def tables(self) -> dict[str, str]:
        return {
            "outbox_table": f"{self.prefix}-outbox",
            "deliveries_table": f"{self.prefix}-deliveries",
        }

    @property
    def client(self) -> Any:
        return boto3.client(
            "dynamodb",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )

    @property
    def batches(self) -> Batches:
        return Batches(
            self.client,
            table=f"{self.prefix}-batches",
            outbox_table=self.tables["outbox_table"],
            deliveries_table=self.tables["deliveries_table"],
        )


@pytest.fixture
def world(dynamodb_local_endpoint: str) -> World:
    made = World(dynamodb_local_endpoint, f"cli-{uuid.uuid4()}")
    names = {"outbox": made.tables["outbox_table"], "deliveries": made.tables["deliveries_table"]}
    for definition in [*table_definitions(**names), batches_definition(f"{made.prefix}-batches")]:
        plain = {k: v for k, v in definition.items() if k != "StreamSpecification"}
        made.client.create_table(**plain)
    return made


@pytest.mark.extended  # starts processes, for seconds
def test_seal_waits_while_acks_arrive_from_others(world: World) -> None:
    batch = world.json("batch", "open")["id"]
    [group] = world.batches.add(batch, 30, request_id="r")
    items = list(group.item_ids())
    waiting = world.start("batch", "seal", batch, "--wait", "--timeout", "50", "--json")
    try:
        for start in range(0, 30, 10):
            assert waiting.poll() is None
            world.json("batch", "ack", *items[start : start + 10])
        out, _ = waiting.communicate(timeout=SECONDS)
    finally:
        waiting.kill()
    assert waiting.returncode == 0
    shown = json.loads(out)
    assert (shown["complete"], shown["acked"], shown["state"]) == (True, 30, "complete")


@pytest.mark.extended  # starts processes, for seconds
def test_who_waits_for_a_batch_that_is_cancelled_ends_with_1(world: World) -> None:
    batch = world.json("batch", "open")["id"]
    world.batches.add(batch, 3, request_id="r")
    waiting = world.start("batch", "show", batch, "--wait", stderr=subprocess.PIPE)
    try:
        time.sleep(1)
        world.json("batch", "cancel", batch, "--yes")
        _, err = waiting.communicate(timeout=SECONDS)
    finally:
        waiting.kill()
    assert (waiting.returncode, err) == (1, f"fairbox: batch {batch} was cancelled\n")


def test_a_terminal_shows_a_bar_and_an_interrupt_ends_quietly(world: World) -> None:
    batch = world.json("batch", "open")["id"]
    world.batches.add(batch, 40, request_id="r")
    world.batches.ack([f"{batch}:0:{index}" for index in range(10)])
    ours, theirs = pty.openpty()
    waiting = world.start("batch", "show", batch, "--wait", "--json", stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        end = time.monotonic() + SECONDS
        while b"10 of 40" not in shown and time.monotonic() < end:
            if select.select([ours], [], [], 1)[0]:
                shown += os.read(ours, 65536)
        waiting.send_signal(signal.SIGINT)
        out, _ = waiting.communicate(timeout=SECONDS)
    finally:
        waiting.kill()
        os.close(ours)
    assert b"10 of 40" in shown
    assert (waiting.returncode, out) == (130, "")
    assert b"Traceback" not in shown


def test_a_setting_or_a_database_that_is_missing_is_one_line(world: World) -> None:
    environment = {k: v for k, v in world.environment.items() if k != "FAIRBOX_BATCHES_TABLE"}
    done = subprocess.run(
        world.command("batch", "list"),
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "fairbox: the setting FAIRBOX_BATCHES_TABLE is missing\n",
    )
    environment["FAIRBOX_BATCHES_TABLE"] = "nowhere"
    done = subprocess.run(
        world.command("batch", "list"),
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("fairbox: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.extended  # starts processes, for seconds
def test_a_reader_that_has_seen_enough_ends_a_list_quietly(world: World) -> None:
    batch = world.json("batch", "open")["id"]
    world.batches.add(batch, 50_000, request_id="r")
    with world.start("batch", "missing", batch, stderr=subprocess.PIPE) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        assert listing.stdout.readline() == f"{batch}:0:0\n"
        listing.stdout.close()
        assert listing.stderr.read() == ""
        assert listing.wait(SECONDS) == 1


def test_a_message_is_sent_and_found(world: World) -> None:
    world.json("topic", "create", "orders", "--shards", "2")
    ref = world.json("message", "send", "orders", "-f", "-", stdin="from a pipe")["ref"]
    assert world.json("message", "show", ref)["body"] == "from a pipe"
    assert world.json("outbox", "count", "orders")["outstanding"] == 1
    assert world.run("message", "cancel", ref, "--yes").stdout == "1 cancelled\n"
