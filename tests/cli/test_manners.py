"""Rules for every verb: options, exit codes, one-line errors, help, completion."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.cli.command_line import app
from fairbox.cli.session import body_text, cell
from fairbox.errors import FairboxError, InvalidInput, NotConfigured, Throttled, Unavailable
from fairbox.sdk.clients import make_client
from typer.main import get_command

from tests.support.cli_runs import NOBODY, Cli

if TYPE_CHECKING:
    from collections.abc import Iterator

FAIRBOX = Path(sys.executable).with_name("fairbox")


def verbs() -> Iterator[tuple[str, str, Any]]:
    root: Any = get_command(app)
    for noun, group in root.commands.items():
        for verb, command in getattr(group, "commands", {}).items():
            yield noun, verb, command


VERBS = {f"{noun} {verb}": command for noun, verb, command in verbs()}


def test_the_nouns_and_verbs_are_those_of_the_surface() -> None:
    batch = ("open", "add", "seal", "ack", "fail", "retry", "show", "missing", "failed", "cancel")
    assert set(VERBS) >= {
        *(f"batch {verb}" for verb in (*batch, "list", "orphans")),
        *(f"topic {verb}" for verb in ("create", "list", "show", "size", "delete")),
        *(f"message {verb}" for verb in ("send", "list", "show", "edit", "skip", "cancel")),
        *(f"subscription {verb}" for verb in ("add", "list", "show", "skip", "remove")),
        *(f"dlq {verb}" for verb in ("list", "show", "redrive", "purge")),
        *(f"queue {verb}" for verb in ("receive", "ack", "nack", "extend", "reset")),
        *(f"queue {verb}" for verb in ("stats", "purge", "pause", "resume")),
        *(f"outbox {verb}" for verb in ("count", "outstanding", "delivered", "sweep")),
    }


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_takes_json_and_an_endpoint_and_gives_help_with_an_example(
    cli: Cli, name: str
) -> None:
    options = {option for parameter in VERBS[name].params for option in parameter.opts}
    assert {"--json", "--endpoint-url"} <= options
    help_ = cli.ok(*name.split(), "--help").out
    assert VERBS[name].help.partition("\n")[0].split()[0] in help_
    assert f"fairbox {name}" in re.sub(r"\s+", " ", help_.partition("Example:")[2])
    assert all(p.help for p in VERBS[name].params), "every parameter says what it is"


@pytest.mark.parametrize(
    "name",
    [
        *("batch cancel", "message cancel", "subscription remove", "queue purge"),
        *("dlq redrive", "dlq purge", "message skip", "subscription skip"),
        *("message bury", "message delete"),
    ],
)
def test_what_cannot_be_undone_asks_and_may_be_tried(name: str) -> None:
    options = {option for parameter in VERBS[name].params for option in parameter.opts}
    assert {"--yes", "--dry-run"} <= options


def test_the_endpoint_is_handed_on(cli: Cli) -> None:
    cli.ok("batch", "list", "--endpoint-url", "http://127.0.0.1:8000")
    cli.ok("batch", "list")
    assert cli.urls == ["http://127.0.0.1:8000", None]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("count", "a whole\nnumber"), 2),
        (NotConfigured("FAIRBOX_BATCHES_TABLE"), 1),
        (Throttled("put_item"), 1),
        (Unavailable("put_item", "Unable to locate credentials"), 1),
    ],
)
def test_an_error_of_the_library_is_one_line_or_a_problem(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: FairboxError, code: int
) -> None:
    def fails(_: str) -> None:
        raise error

    monkeypatch.setattr(cli.application.batches, "seal", fails)
    run = cli("batch", "seal", NOBODY)
    assert (run.code, run.out) == (code, "")
    assert run.err == f"fairbox: {' '.join(str(error).split())}\n"
    run = cli("batch", "seal", NOBODY, "--json")
    assert (run.code, run.out) == (code, "")
    assert run.problem["detail"] == str(error)
    assert run.problem["type"].startswith("urn:fairbox:problem:")


def test_an_interrupt_ends_quietly_with_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.application.batches, "progress", interrupted)
    run = cli("batch", "show", NOBODY, "--wait")
    assert (run.code, run.out, run.err) == (130, "", "")


@pytest.mark.parametrize(
    "arguments",
    [("batch", "explode"), ("batch", "show"), ("what",), ("batch", "list", "--limit", "0")],
)
def test_usage_that_is_wrong_ends_with_2(cli: Cli, arguments: tuple[str, ...]) -> None:
    run = cli(*arguments)
    assert (run.code, run.out) == (2, "")
    assert "Usage" in run.err


def test_times_at_the_edge_of_the_calendar_are_times(cli: Cli) -> None:
    cli.ok("topic", "create", "orders")
    for option in ("--since", "--until"):
        for time in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
            assert cli.ok("outbox", "delivered", "orders", option, time).err == "nothing\n"
        assert cli("outbox", "delivered", "orders", option, "10000-01-01").code == 2
    assert cli("message", "list", "orders", "--limit", "9" * 30).code == 2


def test_text_that_is_no_print_is_escaped() -> None:
    assert cell("user_key", "a\x1b[2Jb") == '"a\\u001b[2Jb"'
    assert (cell("a", "é"), cell("a", None), cell("a", True)) == ("é", "", "true")


@pytest.mark.parametrize("number", ["12345678901234567.89", "0.1234567890123456789", "1e999"])
def test_a_number_that_no_float_is_stays_in_a_body_as_it_is(number: str) -> None:
    assert body_text({"body": f'{{"a":{number}}}'}) == f'{{"a":{number}}}'
    assert body_text({"body": '{"a":1.10}'}) == '{\n  "a": 1.1\n}'


def test_people_read_times_in_utc() -> None:
    assert cell("opened_at", 1_760_000_000_999) == "2025-10-09T08:53:20+00:00"
    assert cell("opened_at", None) == ""
    assert cell("total", 1_760_000_000_999) == "1760000000999"
    assert cell("attempts", {"since": 3, "paused_at": 1}) == '{"since": 3, "paused_at": 1}'
    failures = {"billing": [{"attempt": 1, "at": 1_760_000_000_999}]}
    assert '"at": "2025-10-09T08:53:20+00:00"' in cell("history", failures)


def test_every_list_and_view_gives_people_times_in_utc(cli: Cli) -> None:
    cli.ok("topic", "create", "orders")
    cli.ok("topic", "create", "events")
    cli.ok("subscription", "add", "events", "billing", "sqs:https://sqs.example/1/q")
    ref = cli.ok("message", "send", "orders", "x").out.strip()
    cli.ok("queue", "receive", "orders")
    for words in ("message list orders", f"message show {ref}", "topic show orders"):
        assert not re.search(r"\b\d{13}\b", cli.ok(*words.split()).out), words
    for words in ("topic show events", "subscription show events billing"):
        assert not re.search(r"\b\d{13}\b", cli.ok(*words.split()).out), words
    until = cli.ok("message", "show", ref, "--json").json["held_until"]
    assert until == (cli.clock.now() + 30) * 1000


def test_the_console_script_gives_help_without_loading_the_sdk() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['fairbox', '--help']\n"
        "from fairbox.cli.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print({'boto3', 'botocore', 'pydantic', 'fairbox.client.outbox'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "set()"
    assert "batch" in done.stdout


def test_the_console_script_tells_its_version() -> None:
    done = subprocess.run(
        [FAIRBOX, "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", done.stdout)


def test_a_shell_can_complete_nouns_verbs_and_states() -> None:
    root: Any = get_command(app)
    assert {"--install-completion", "--show-completion"} <= {
        option for parameter in root.params for option in parameter.opts
    }
    environment = {
        "_FAIRBOX_COMPLETE": "complete_bash",
        "COMP_WORDS": "fairbox batch o",
        "COMP_CWORD": "2",
        "PATH": "",
    }
    done = subprocess.run(
        [FAIRBOX], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.split() == ["open", "orphans"]


def test_what_is_missing_of_the_extra_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairbox.cli import __main__  # noqa: PLC0415 - it is what is tested

    monkeypatch.setitem(sys.modules, "fairbox.cli.command_line", None)
    with pytest.raises(ModuleNotFoundError):
        __main__.main()
    code = (
        "import sys\nsys.modules['typer'] = None\nfrom fairbox.cli.__main__ import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr == "fairbox: typer is missing: install Fairbox with its extra 'cli'\n"


def test_a_client_that_cannot_be_made_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(NotConfigured) as missing:
        make_client("dynamodb")
    assert missing.value.setting == "AWS_REGION"
    for text in ("", "eu_north"):
        monkeypatch.setenv("AWS_REGION", text)
        with pytest.raises(InvalidInput, match="such as eu-west-1"):
            make_client("dynamodb")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert make_client("dynamodb").meta.region_name == "eu-north-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert make_client("dynamodb").meta.region_name == "eu-north-1"
    monkeypatch.setenv("AWS_REGION", "")
    assert make_client("dynamodb").meta.region_name == "eu-west-1"
    for url in ("localhost:8000", "ftp://x", "http://[", "http://a:99999", "http://", "/"):
        with pytest.raises(InvalidInput) as wrong:
            make_client("dynamodb", url)
        assert wrong.value.field == "endpoint_url"
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(InvalidInput, match="AWS_ENDPOINT_URL: expected an http or https URL"):
            make_client("sqs")
        monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(Unavailable, match="nobody"):
        make_client("dynamodb")


def test_a_confirmation_is_no_part_of_the_result(cli: Cli) -> None:
    run = cli("batch", "cancel", cli.opened(1), "--json", stdin="n\n")
    assert run.code == 1
    assert "Cancel batch" in run.err
