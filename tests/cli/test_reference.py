"""The reference page of the command line: every verb stands there, and every command runs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fairbox import Feed, Message, PartitionedQueue, Subscription, Topic
from fairbox.cli.command_line import app
from fairbox.dispatch.ports import Outcome
from fairbox_pipeline.arguments import parser_of
from fairbox_pipeline.jobs.replay import arguments
from typer.main import get_command

from tests.support.other_outboxes import text_keys

if TYPE_CHECKING:
    from tests.support.cli_runs import Cli

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (.+)$", PAGE, re.MULTILINE)
OF_AWS = ("fairbox env", "fairbox smoke", "fairbox feed tail", "fairbox feed token")
ALONE = {
    "fairbox cost",
    "fairbox doctor",
    "fairbox import",
    "fairbox shell",
    *OF_AWS[:2],
}  # verbs of no noun


def test_every_verb_has_a_command_on_the_page() -> None:
    root = get_command(app)
    verbs = {
        f"fairbox {noun} {verb}"
        for noun, group in root.commands.items()  # type: ignore[attr-defined] # it is a group
        for verb in getattr(group, "commands", ())
    } | ALONE
    shown = {" ".join(command.split()[:3]).partition(" --")[0] for command in COMMANDS}
    assert shown == verbs
    alone = "|".join(sorted(ALONE))
    assert set(re.findall(rf"^###? (fairbox \w+ \w+|{alone})$", PAGE, re.MULTILINE)) == verbs


@pytest.fixture
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs read their arguments and answer; the end-to-end tests run them."""

    def run(asked: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        assert asked[1:4] == ["-m", "fairbox_pipeline.cli", "replay"]
        options = parser_of("replay", "", arguments).parse_args(asked[4:])
        answer = json.dumps({"chosen": 0, "dry_run": options.dry_run})
        return subprocess.CompletedProcess(asked, 0, answer.encode())

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.usefixtures("_no_spark")
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("command", [c for c in COMMANDS if not c.startswith(OF_AWS)])
def test_every_command_of_the_page_runs(cli: Cli, command: str, as_json: bool) -> None:
    for name, value in variables(cli, command).items():
        command = command.replace(f"${name}", value)
    assert "$" not in command
    program, *given = shlex.split(command)
    assert program == "fairbox"
    run = cli.ok(*given, *(["--json"] if as_json else []))
    if as_json:
        assert all(isinstance(found, dict) for found in run.objects)
        assert run.err == ""


def variables(cli: Cli, command: str) -> dict[str, str]:
    """Return what a command's variables stand for, where it is to run."""
    outbox = cli.application.outbox
    if "queue" in command:
        outbox.create_topic(Topic("jobs"))
        PartitionedQueue("email", 2).create(outbox)
        outbox.add(Message(topic="jobs", body=b"{}", id=cli.application.ids.next()))
    [*held] = cli.application.queue.receive("jobs") if "$RECEIPT" in command else []
    cli.application.feeds.create(Feed("trades", "ring"))
    if "import" in command:
        text_keys(cli.application.engine, "brighter_outbox", "MessageId")
    if "topic create" not in command:
        outbox.create_topic(Topic("orders"))
    if re.search("subscription (pause|resume|remove|show|skip)|message skip", command):
        outbox.add_subscription(Subscription("orders", "billing", "sqs:http://q/q"))
    batch = cli.opened(0 if "batch add" in command else 10)
    if "batch retry" in command:
        cli.application.batches.fail([f"{batch}:0:2"])
    ref = cli.ok("message", "send", "orders", "{}").out.strip() if "$REF" in command else ""
    return {
        "ARCHIVE": "/archive",
        "WAREHOUSE": "/warehouse",
        "BATCH": batch,
        "REF": ref,
        "DEAD": dead(cli) if "$DEAD" in command else "",
        "RECEIPT": held[0].receipt if held else "",
    }


def dead(cli: Cli) -> str:
    cli.application.outbox.add_subscription(
        Subscription("orders", "b", "sqs:http://q/b", max_attempts=1)
    )
    cli.application.destinations["sqs:http://q/b"].answer = lambda _: Outcome("refused", "no")
    ref = cli.ok("message", "send", "orders", "{}").out.strip()
    cli.application.run(seconds=5)
    return ref
