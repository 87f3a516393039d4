"""The shell: lines from standard input, and through a pseudo-terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fairbox import Message, Topic

from tests.support.terminals import SECONDS, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.cli_runs import Cli

ROOT = Path(__file__).parents[2]
PROGRAM = """
from fairbox import Topic
from fairbox.cli.command_line import app
from tests.support.cli_runs import Cli
from tests.cli.test_shell import send
cli = Cli()
cli.application.outbox.create_topic(Topic("jobs", shards=1))
send(cli, b"one", b"two")
app(["shell"], obj=cli.open)
"""


def send(cli: Cli, *bodies: bytes) -> list[str]:
    ids = cli.application.ids
    return [
        str(cli.application.queue.send(Message(topic="jobs", body=body, id=ids.next())))
        for body in bodies
    ]


@pytest.fixture
def jobs(cli: Cli) -> Cli:
    cli.application.outbox.create_topic(Topic("jobs", shards=1))
    return cli


def test_short_verbs_work_on_the_current_message(jobs: Cli) -> None:
    send(jobs, b"one", b"two", b"three")
    lines = "use jobs\nreceive\nshow\nack\nreceive\nextend 60\nnack --dead --reason no\nredrive\n"
    run = jobs.ok("shell", stdin=lines)
    assert run.err == ""
    assert "1 acked" in run.out
    assert "held for 60 s" in run.out
    assert "1 put back" in run.out
    assert jobs.ok("outbox", "count", "jobs").out == "2\n"


def test_what_is_settled_by_its_ref_is_held_no_more(jobs: Cli) -> None:
    send(jobs, b"one", b"two", b"three")
    lines = "use jobs\nreceive\nreceive\nrelease\nbury --yes\nreceive\ndelete --yes\nheld\n"
    run = jobs.ok("shell", stdin=lines)
    assert run.err == "nothing\n"
    assert all(f"1 {done}" in run.out for done in ("released", "buried", "deleted"))


def test_what_is_still_held_at_the_end_is_given_back(jobs: Cli) -> None:
    refs = send(jobs, b"one", b"two")
    run = jobs.ok("shell", stdin="queue receive jobs\nack\n")
    assert f"still held: {refs[1]}\n1 given back\n" in run.err
    (again,) = jobs.ok("queue", "receive", "jobs", "--json").objects
    assert (again["ref"], again["receive_count"]) == (refs[1], 1)


def test_verbs_have_every_client_that_they_have_outside(jobs: Cli) -> None:
    run = jobs.ok("shell", stdin="doctor --check sweep\n")
    assert run.out == jobs.ok("doctor", "--check", "sweep").out


def test_a_line_may_name_no_other_dynamodb_than_the_shell_s(jobs: Cli) -> None:
    own, other = "http://127.0.0.1:8000", "http://127.0.0.1:8001"
    lines = f"topic list --endpoint-url {own}\ntopic list --endpoint-url {other}\n"
    run = jobs("shell", "--endpoint-url", own, stdin=lines)
    assert run.code == 2
    assert run.out.count("jobs") == 1
    assert run.err.startswith("fairbox: endpoint_url")


def test_an_error_is_one_line_and_the_shell_goes_on(jobs: Cli) -> None:
    run = jobs("shell", stdin="ack\nuse nowhere\nqueue explode\nnonsense\n'\ntopic list --json\n")
    assert run.code != 0
    assert all(line.startswith("fairbox: ") for line in run.err.splitlines())
    assert len(run.err.splitlines()) == 5
    assert '"name":"jobs"' in run.out


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    state = {"XDG_STATE_HOME": str(tmp_path)}
    made = Terminal([sys.executable, "-c", PROGRAM], ROOT, state)
    yield made
    made.close()


def test_a_terminal_completes_clears_remembers_and_asks_at_the_end(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.until("fairbox>")
    terminal.type("use j\t")
    terminal.until("obs")
    terminal.type("\r")
    terminal.until("fairbox jobs>")
    terminal.type("nonsense\x03")
    terminal.until("fairbox jobs>")
    terminal.type("receive\r")
    terminal.until(r"fairbox jobs \(1 held\)>")
    terminal.type("ack\r")
    terminal.until("1 acked")
    terminal.type("receive\r")
    terminal.until(r"fairbox jobs \(1 held\)>")
    terminal.type("\x04")
    terminal.until("still held: jobs/")
    terminal.until("Give back")
    terminal.type("y\r")
    terminal.until("1 given back")
    assert terminal.process.wait(SECONDS) == 0
    history = (tmp_path / "fairbox/history").read_text(encoding="utf-8")
    remembered = [line[1:] for line in history.splitlines() if line.startswith("+")]
    assert remembered == ["use jobs", "receive", "ack", "receive"]
