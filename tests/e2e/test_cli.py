"""Every command of the command line, and the shell, against the running application."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import PartitionedQueue
from fairbox.cli.command_line import app
from fairbox.cli.shell import SHORT
from typer.main import get_command
from typer.testing import CliRunner

from local.engines import iceberg
from local.workspace import Workspace
from tests.e2e.stage import Stage, eventually
from tests.support.other_outboxes import text_keys
from tests.support.terminals import SECONDS, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.engine, pytest.mark.e2e]

FAIRBOX = str(Path(sys.executable).with_name("fairbox"))


def tree() -> set[str]:
    """Return every verb that the command line has, with its noun."""
    root: Any = get_command(app)
    return {
        f"{name} {verb}".strip()
        for name, group in root.commands.items()
        for verb in getattr(group, "commands", {"": None})
    }


@dataclass
class Cli:
    """`fairbox` over the application's own environment, in this process.

    Attributes:
        folder: for files of one test.
        run: the verbs that ran and ended well.
    """

    stage: Stage
    folder: Path
    run: set[str] = field(default_factory=set)

    def __call__(self, *arguments: str, stdin: str | None = None) -> list[Any]:
        """Run a verb with `--json`; return the objects that it printed."""
        result = CliRunner().invoke(
            app,
            [*arguments, "--json"],
            input=stdin,
            env=self.stage.app.env,
            catch_exceptions=False,
        )
        assert result.exit_code == 0, (arguments, result.stdout, result.stderr)
        self.run.add(" ".join(word for word in arguments[:2] if not word.startswith("-")))
        return [json.loads(line) for line in result.stdout.splitlines()]

    def one(self, *arguments: str, stdin: str | None = None) -> Any:
        """Run a verb that prints one object; return it."""
        (found,) = self(*arguments, stdin=stdin)
        return found

    def topic(self, name: str, *options: str) -> str:
        """Create a topic of a name of its own."""
        made = f"{name}-{os.getpid()}-{len(self.run)}"
        self.one("topic", "create", made, "--shards", "1", "--max-attempts", "2", *options)
        return made

    def receive(self, topic: str, *options: str) -> list[Any]:
        return self("queue", "receive", topic, "--wait", "10", *options)


LONG = ("replays", "subscriptions")
"""Scenes that wait for minutes; tests/cli runs their verbs in memory."""
SCENES: dict[str, tuple[Callable[[Cli], None], frozenset[str]]] = {}


def scene(*verbs: str) -> Callable[[Callable[[Cli], None]], Callable[[Cli], None]]:
    """Declare which verbs a scene runs; `test_a_scene_plays` holds it to that."""

    def declare(play: Callable[[Cli], None]) -> Callable[[Cli], None]:
        SCENES[play.__name__] = play, frozenset(verbs)
        return play

    return declare


@scene("topic create", "topic list", "topic show", "topic size", "topic delete")
def topics(cli: Cli) -> None:
    name = cli.topic("cli-topics", "--ordering", "key")
    assert cli.one("topic", "show", name)["ordering"] == "key"
    assert name in {found["name"] for found in cli("topic", "list")}
    assert cli.one("topic", "size", "--rate", "1400", "--wcu", "1")["shards"] == 2
    assert not cli.one("topic", "delete", name, "--no-wait", "--yes")["deleted"]
    assert cli.one("topic", "show", name)["deleting_at"] is not None


@scene(
    "feed create",
    "feed delete",
    "feed list",
    "feed publish",
    "feed show",
    "feed size",
    "feed tail",
    "feed token",
)
def feeds(cli: Cli) -> None:
    assert cli.one("feed", "create", "cli-inbox", "--kind", "private")["limit"] == 256
    numbers = cli("feed", "publish", "cli-inbox", "u7", "1", '{"two": 2}')
    assert numbers == [{"number": 1}, {"number": 2}]
    tail = ("feed", "tail", "cli-inbox/u7", "--seconds", "5")
    assert [m["body"] for m in cli(*tail)] == [1, {"two": 2}]
    # which acknowledged them
    assert [m["body"] for m in cli(*tail, "--from", "1")] == [{"two": 2}]
    assert cli(*tail) == []
    assert cli.one("feed", "show", "cli-inbox", "u7")["unacknowledged"] == 0
    assert "cli-inbox" in {found["name"] for found in cli("feed", "list")}
    assert cli.one("feed", "size", "--clients", "1000")["audience_shards"] == 4
    token = cli.one("feed", "token", "u7", "cli-inbox/u7")["token"]
    assert [m["body"] for m in cli(*tail, "--from", "1", "--token", token)] == [{"two": 2}]
    assert cli.one("feed", "delete", "cli-inbox", "--yes")["deleted"]


@scene("env")
def variables(cli: Cli) -> None:
    told = cli.one("env")
    here = cli.stage.app.env
    assert told["FAIRBOX_API_URL"] == cli.stage.app.api_url
    assert {k: v for k, v in told.items() if k in here} == {k: here[k] for k in told if k in here}
    # the name of the deployment alone does what all of them do
    alone = {name: "" for name in here if name.startswith("FAIRBOX_")}
    env = here | alone | {"FAIRBOX_STACK": told["FAIRBOX_STACK"]}
    result = CliRunner().invoke(app, ["topic", "list", "--json"], env=env, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()


@scene("topic resize", "queue resize", "outbox misplaced")
def resizes(cli: Cli) -> None:
    topic = cli.topic("cli-resized")
    ref = cli.one("message", "send", topic, "x")["ref"]
    announced = cli.one("topic", "resize", topic, "--shards", "3")
    assert (announced["epoch"], announced["before"], announced["shards"]) == (1, 1, 3)
    assert not cli.one("topic", "resize", topic, "--shards", "3")["changed"]
    epochs = cli.one("topic", "show", topic)["epochs"]
    assert [epoch["phase"] for epoch in epochs] == ["current", "announced"]
    assert cli("outbox", "misplaced", topic) == []
    repaired = cli.one("outbox", "misplaced", topic, "--repair", "--yes")
    assert (repaired["moved"], repaired["scanned"] > 0) == ([], True)
    (held,) = cli.receive(topic)
    assert held["ref"] == ref
    queue = f"{topic}-emails"
    PartitionedQueue(queue, 2).create(cli.stage.outbox, shards=1)
    widened = cli.one("queue", "resize", queue, "--partitions", "3")
    assert (widened["before"], widened["partitions"]) == (2, 3)
    assert f"{queue}__p2" in {found["name"] for found in cli("topic", "list")}


@scene(
    "message send", "message list", "message show", "message edit", "message cancel",
    "message erase",
)  # fmt: skip
def messages(cli: Cli) -> None:
    topic = cli.topic("cli-messages")
    ref = cli.one("message", "send", topic, "first", "--delay", "3600")["ref"]
    assert [m["ref"] for m in cli("message", "list", topic, "--state", "waiting")] == [ref]
    now = cli.one("message", "edit", ref, "second", "--due", "now")["ref"]
    assert cli.one("message", "show", now)["body"] == "second"
    cli("message", "cancel", now, "--reason", "duplicate", "--yes")
    assert cli("message", "list", topic) == []
    ref = cli.one("message", "send", topic, "third", "--partition-key", "customer-42")["ref"]
    erase = ("message", "erase", "--partition-key", "customer-42", "--topic", topic)
    assert cli.one(*erase, "--dry-run")["cancelled"] == [ref]
    assert cli.one(*erase, "--yes")["cancelled"] == [ref]
    assert cli("message", "list", topic) == []


@scene("import")
def imports(cli: Cli) -> None:
    topic = cli.topic("cli-imports")
    table = f"{topic}-before"
    text_keys(cli.stage.dynamodb, table, "pk", "at")
    for n, status in enumerate(("PENDING", "SENT", "PENDING")):
        at = f"2026-11-0{n + 1}T12:00:00Z"
        row = {"pk": "order#7", "at": at, "status": status, "payload": f"row {n}"}
        item = {name: {"S": value} for name, value in row.items()}
        cli.stage.dynamodb.put_item(TableName=table, Item=item)
    layout = cli.folder / "layout.json"
    waiting = {"status": "PENDING", "sentAt": None}
    moved = {"status": "MOVED", "sentAt": "$iso"}
    fields = {"waiting": waiting, "moved": moved, "body": "payload", "created": "at", "to": topic}
    layout.write_text(json.dumps(fields))
    move = ("import", "--layout", str(layout), table)
    assert cli.one(*move, "--dry-run")["count"] == 2
    assert cli.one(*move, "--yes") | {"left": 0} == {
        "count": 2,
        "topics": {topic: 2},
        "left": 0,
        "dry_run": False,
    }
    assert [one["body"] for one in cli.receive(topic)] == ["row 0", "row 2"]
    assert cli.one(*move, "--yes")["count"] == 0
    layout.write_text(json.dumps(fields | {"waiting": {"status": "SENT"}, "moved": {}}))
    assert cli.one(*move, "--yes")["count"] == 1
    assert cli.stage.dynamodb.scan(TableName=table)["Count"] == 2


@scene(
    "queue receive", "queue ack", "queue nack", "queue extend", "queue reset", "queue stats",
    "queue purge", "queue pause", "queue resume",
)  # fmt: skip
def queues(cli: Cli) -> None:
    topic = cli.topic("cli-queues")
    refs = [cli.one("message", "send", topic, body)["ref"] for body in ("a", "b", "c")]
    held = cli.receive(topic)
    assert [one["ref"] for one in held] == refs
    first, second, third = (one["receipt"] for one in held)
    assert cli.one("queue", "ack", first) == {"acked": 1}
    cli("queue", "extend", second, "600")
    cli("queue", "reset", third)
    assert [one["receive_count"] for one in cli.receive(topic)] == [1]
    cli("queue", "nack", second, "--reason", "not yet")
    (again,) = cli.receive(topic)
    assert (again["ref"], again["receive_count"]) == (refs[1], 2)
    cli("queue", "reset", again["receipt"])
    cli("queue", "pause", topic)
    assert cli("queue", "receive", topic) == []
    cli("queue", "resume", topic)
    assert [one["ref"] for one in cli.receive(topic)] == [refs[1]]
    assert cli.one("queue", "purge", topic, "--yes") == {"purged": 2}
    eventually(
        lambda: cli.one("queue", "stats", topic)["outstanding"] == 0,
        failing=lambda: cli.one("queue", "stats", topic),
    )


@scene("message release", "message reset", "message bury", "message delete")
def held_messages(cli: Cli) -> None:
    topic = cli.topic("cli-held")
    refs = [cli.one("message", "send", topic, body)["ref"] for body in ("a", "b", "c")]
    held = cli.receive(topic, "--visibility-timeout", "3600")
    assert [one["ref"] for one in held] == refs
    for verb in ("release", "reset"):
        cli("message", verb, refs[0])
        (again,) = cli.receive(topic, "--visibility-timeout", "3600")
        assert (again["ref"], again["receive_count"]) == (refs[0], 1)
    cli("message", "bury", refs[1], "--reason", "no", "--yes")
    cli("message", "delete", refs[2], "--yes")
    (dead,) = cli("queue", "receive", topic, "--dead")
    assert (dead["ref"], dead["reason"]) == (refs[1], "no")
    cli("queue", "ack", dead["receipt"])
    assert cli("message", "list", topic, "--state", "dead") == []


@scene("doctor")
def doctor(cli: Cli) -> None:
    sound = ("settings", "tables", "indexes", "streams", "expiry", "queues")
    found = cli("doctor", *(part for name in sound for part in ("--check", name)))
    assert {one["check"] for one in found} == set(sound)
    assert {one["status"] for one in found} <= {"ok", "warn"}


@scene("dlq list", "dlq show", "dlq redrive", "dlq purge")
def dead_letters(cli: Cli) -> None:
    topic = cli.topic("cli-dead")
    for body in ("one", "two", "three"):
        cli("message", "send", topic, body)
    held = cli.receive(topic)
    for one in held:
        cli("queue", "nack", one["receipt"], "--dead", "--reason", f"no {one['body']}")
    refs = [one["ref"] for one in held]
    assert [letter["ref"] for letter in cli("dlq", "list", topic)] == refs
    assert cli.one("dlq", "show", refs[0])["reason"] == "no one"
    cli("dlq", "redrive", topic, "--id", refs[0], "--body", "-", "--yes", stdin="better")
    (better,) = cli.receive(topic)
    assert (better["ref"], better["body"]) == (refs[0], "better")
    cli("queue", "ack", better["receipt"])
    tried = cli.one("dlq", "purge", topic, "--reason", "no two", "--dry-run")
    assert (tried["names"], len(cli("dlq", "list", topic))) == ([refs[1]], 2)
    assert cli.one("dlq", "purge", topic, "--note", "of no use", "--yes")["names"] == refs[1:]
    assert cli("dlq", "list", topic) == []
    eventually(
        lambda: cli.one("queue", "stats", topic)["dead"] == 0,
        failing=lambda: cli.one("queue", "stats", topic),
    )

    def purged() -> list[str]:
        lines = cli.stage.archive(topic)
        return sorted(x["id"] for x in lines if x.get("reason") == "of no use")

    ids = sorted(ref.split("/")[3] for ref in refs[1:])
    eventually(lambda: purged() == ids, failing=lambda: cli.stage.archive(topic))


@scene(
    "batch open", "batch add", "batch seal", "batch ack", "batch fail", "batch retry",
    "batch show", "batch missing", "batch failed", "batch cancel", "batch list", "batch orphans",
)  # fmt: skip
def batches(cli: Cli) -> None:
    batch = cli.one("batch", "open", "--user-key", "catalog")["id"]
    cli("batch", "add", batch, "4", "--request-id", "r")
    items = [found["id"] for found in cli("batch", "missing", batch)]
    assert len(items) == 4
    cli("batch", "fail", items[0], "--reason", "no such product")
    assert [found["id"] for found in cli("batch", "failed", batch)] == [items[0]]
    cli("batch", "retry", items[0])
    cli("batch", "ack", *items[:3])
    assert cli.one("batch", "seal", batch)["pending"] == 1
    eventually(
        lambda: batch in {found["id"] for found in cli("batch", "list", "--state", "sealed")},
        failing=lambda: cli("batch", "list"),
    )
    cli("batch", "ack", "-", stdin=items[3])
    assert cli.one("batch", "show", batch)["complete"]
    other = cli.one("batch", "open")["id"]
    cli("batch", "cancel", other, "--yes")
    assert cli.one("batch", "show", other)["state"] == "cancelled"
    cli("batch", "orphans")


@scene(
    "subscription add", "subscription list", "subscription pause", "subscription show",
    "subscription skip", "message skip", "subscription resume", "subscription remove",
)  # fmt: skip
def subscriptions(cli: Cli) -> None:
    topic = cli.topic("cli-subscriptions")
    url = cli.stage.queue().url
    cli("subscription", "add", topic, "billing", f"sqs:{url}")
    assert [s["name"] for s in cli("subscription", "list", topic)] == ["billing"]
    cli("subscription", "pause", topic, "billing", "--reason", "new system")
    (paused,) = cli("subscription", "list", topic)
    assert (paused["state"], paused["pause_reason"]) == ("paused", "new system")
    first = cli.one("message", "send", topic, "skipped")["ref"]
    cli("message", "skip", first, "--subscription", "billing", "--yes")
    cli("message", "send", topic, "skipped, too")
    assert cli.one("subscription", "skip", topic, "billing", "--yes")["skipped"] == 1
    ref = cli.one("message", "send", topic, "waits")["ref"]
    assert cli.one("subscription", "show", topic, "billing")["waiting"] == 1
    assert cli.one("subscription", "resume", topic, "billing")["state"] == "closed"
    eventually(
        lambda: [found["ref"] for found in cli("outbox", "delivered", topic)] == [ref],
        failing=lambda: cli("outbox", "outstanding", topic),
    )
    cli("subscription", "remove", topic, "billing", "--yes")
    assert cli("subscription", "list", topic) == []
    jobs = cli.topic("cli-fed")
    cli("subscription", "add", topic, "feed", f"topic:{jobs}")
    cli("message", "send", topic, "work", "--partition-key", "k")
    (fed,) = cli("queue", "receive", jobs, "--wait", "60")
    assert (fed["body"], fed["partition_key"]) == ("work", "k")
    cli("queue", "ack", fed["receipt"])


@scene("outbox count", "outbox outstanding", "outbox delivered", "outbox sweep")
def outbox(cli: Cli) -> None:
    topic = cli.topic("cli-outbox", "--ordering", "key")  # of which rings deliver the young too
    ref = cli.one("message", "send", topic, "x")["ref"]
    assert cli.one("outbox", "count", topic)["outstanding"] == 1
    assert [found["ref"] for found in cli("outbox", "outstanding", topic)] == [ref]
    cli.stage.subscribe(topic, {"hook": cli.stage.sink.url(topic)})
    assert cli.one("outbox", "sweep", "--older-than", "0")["rung"] >= 1
    eventually(
        lambda: [found["ref"] for found in cli("outbox", "delivered", topic)] == [ref],
        failing=lambda: cli("outbox", "outstanding", topic),
    )
    eventually(
        lambda: {line["event"] for line in cli.stage.archive(topic)} == {"added", "delivered"},
        failing=lambda: cli.stage.archive(topic),
    )


@scene("outbox replay")
def replays(cli: Cli) -> None:
    topic = cli.topic("cli-replayed")
    cli.stage.subscribe(topic, {"hook": cli.stage.sink.url(topic)})
    cli("message", "send", topic, "x")
    eventually(
        lambda: {line["event"] for line in cli.stage.archive(topic)} == {"added", "delivered"},
        failing=lambda: cli.stage.archive(topic),
    )
    archive = cli.folder / "archive" / "dt=2026-01-01" / "hour=00"
    archive.mkdir(parents=True)
    lines = (json.dumps(line) + "\n" for line in cli.stage.archive(topic))
    (archive / "0.json.gz").write_bytes(gzip.compress("".join(lines).encode()))
    iceberg.install(Workspace())
    where = ("--archive", str(cli.folder / "archive"), "--warehouse", str(cli.folder / "warehouse"))
    chosen = ("--topic", topic, "--state", "delivered", "--rate", "1000", "--yes")
    assert cli.one("outbox", "replay", *where, *chosen)["outcome"] == {"added": 1}
    eventually(
        lambda: len(cli("outbox", "delivered", topic)) == 2,
        failing=lambda: cli("outbox", "outstanding", topic),
    )


@pytest.fixture
def cli(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("TERM", "dumb")
    return Cli(stage, tmp_path)


def test_every_verb_of_the_command_line_is_in_a_scene() -> None:
    played = {verb for _, verbs in SCENES.values() for verb in verbs}
    assert played | {"cost", "shell", "smoke"} == tree()  # which have tests of their own


@pytest.mark.extended  # tests/cli has each verb in memory
@pytest.mark.parametrize(
    "name",
    [
        # a JVM of its own; tests/pipeline replays too
        pytest.param(name, marks=pytest.mark.extended if name in LONG else ())
        for name in sorted(SCENES)
    ],
)
def test_a_scene_plays_the_verbs_that_it_names(name: str, cli: Cli) -> None:
    play, verbs = SCENES[name]
    play(cli)
    assert verbs <= cli.run


@pytest.fixture(scope="module")
def deleting(stage: Stage) -> Iterator[subprocess.Popen[str]]:
    """A topic that is deleted in a process of its own, which takes a minute."""
    topic = stage.topic("cli-deleted", shards=1)
    process = subprocess.Popen(
        [FAIRBOX, "topic", "delete", topic, "--yes", "--json"],
        env=os.environ | stage.app.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.fixture(scope="module", autouse=True)
def _deletion_begins_early(request: pytest.FixtureRequest) -> None:
    """Let the deletion go on beside the other tests, where its own is to run."""
    if any("deleting" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("deleting")


@dataclass
class ShellTerminal:
    """`fairbox shell` on a terminal.

    Attributes:
        typed: the first word of every line that was typed.
    """

    terminal: Terminal
    typed: set[str] = field(default_factory=set)

    def __call__(self, line: str, *shown: str) -> None:
        """Type a line, and wait until it shows what these patterns say, in turn."""
        self.typed.add(line.split(maxsplit=1)[0])
        self.terminal.type(f"{line}\r")
        for pattern in shown:
            self.terminal.until(pattern)


@pytest.mark.extended  # tests/cli/test_shell has a terminal
def test_every_verb_of_the_shell_works_on_a_terminal(stage: Stage, tmp_path: Path) -> None:
    topic = stage.topic("cli-shell", shards=1)
    program = Cli(stage, tmp_path)
    refs = [program.one("message", "send", topic, body)["ref"] for body in ("one", "two")]
    first, second = map(re.escape, refs)
    env = stage.app.env | {"XDG_STATE_HOME": str(tmp_path)}
    terminal = Terminal([FAIRBOX, "shell"], tmp_path, env)
    here = re.escape(f"fairbox {topic}>")
    holding = re.escape(f"fairbox {topic} (1 held)>")
    try:
        terminal.until("fairbox>")
        shell = ShellTerminal(terminal)
        shell("help", "make it the current topic", "fairbox>")
        terminal.type(f"use {topic[:-1]}\t")
        # a name that the application knows; a terminal may draw the line before it writes the rest
        terminal.until(re.escape(topic[:-1]))
        terminal.until(re.escape(topic[-1]))
        terminal.type("\x15")  # the line is cleared
        shell(f"use {topic}", here)
        shell("receive --wait 10", first, holding)
        shell("show", "one", holding)
        shell("held", first, holding)
        shell("extend 300", "held for 300 s", holding)
        shell("reset", "1 released", here)
        shell("receive --wait 10", first, holding)
        shell("nack --dead --reason no", "dead", here)
        shell(f"dlq list {topic}", first, here)
        shell("redrive", "1 put back", here)
        shell(f"dlq purge {topic} --yes", "0 purged", here)
        shell("receive --wait 10", first, holding)
        shell("ack", "1 acked", here)
        shell("receive --wait 10", second, holding)
        shell("exit", "Give back")
        terminal.type("y\r")
        terminal.until("1 given back")
        assert terminal.process.wait(SECONDS) == 0
    finally:
        terminal.close()
    # these three have a test in tests/cli/test_shell
    assert shell.typed >= set(SHORT) - {"release", "bury", "delete"}
    assert program.one("outbox", "count", topic)["outstanding"] == 1


@pytest.mark.extended  # takes the minute that a deletion waits
def test_a_topic_is_deleted_by_a_process_that_waits(
    stage: Stage, deleting: subprocess.Popen[str], tmp_path: Path
) -> None:
    out, err = deleting.communicate(timeout=180)
    assert deleting.returncode == 0, err
    told = json.loads(out)
    assert told["deleted"]
    cli = Cli(stage, tmp_path)
    assert told["topic"] not in {found["name"] for found in cli("topic", "list")}
