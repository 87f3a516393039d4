"""`fairbox doctor`: what it prints, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox import Topic
from fairbox.doctor.examination import checks
from fairbox.doctor.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from tests.support.cli_runs import Cli


def test_without_findings_it_says_how_many_there_were_and_ends_well(cli: Cli) -> None:
    run = cli.ok("doctor", "--check", "sweep", "--check", "counts")
    assert run.lines == ["0 failed, 0 warnings, 2 ok, 0 not checked"]
    shown = cli.ok("doctor", "--check", "sweep", "--all").lines
    assert shown[0] == "ok    sweep: pushed topics: 0 shards hold work, none is late"


def test_a_warning_comes_with_its_advice_and_ends_well(cli: Cli) -> None:
    cli.application.outbox.create_topic(Topic("orders", shards=1))
    cli.application.outbox.pause_topic("orders", wait=False)
    run = cli.ok("doctor", "--check", "topics")
    assert run.lines[0] == "WARN  topics: topic orders: receiving from it is paused"
    assert run.lines[1].strip().startswith("Resume it")
    assert run.lines[2] == "0 failed, 1 warnings, 0 ok, 0 not checked"


def test_a_failure_ends_with_one(cli: Cli) -> None:
    outbox = cli.application.outbox
    outbox.create_topic(Topic("orders", shards=1))
    (row,) = [i for i in cli.application.engine.items("outbox") if i["sk"]["S"] == "topic#orders"]
    cli.application.engine.put_item(TableName="outbox", Item=row | {"cv": {"N": "2"}})
    run = cli("doctor", "--check", "topics", "--json")
    assert run.code == 1
    (finding,) = run.objects
    assert (finding["check"], finding["status"]) == ("topics", "fail")
    assert "codec version 2" in finding["detail"]


def test_on_this_machine_it_says_only_what_applies_there(cli: Cli) -> None:
    local = cli.ok("doctor", "--endpoint-url", "http://127.0.0.1:8000").lines
    assert not any(line.startswith("--") for line in local)
    assert any(line.startswith("--") for line in cli.ok("doctor").lines)


def test_findings_are_printed_as_they_come(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: object) -> Iterator[Finding]:
        yield Finding("counts", "shards", "warn", "first", "")
        raise KeyboardInterrupt

    monkeypatch.setattr("fairbox.doctor.examination.examine", found)
    assert "first" in cli("doctor").out


def test_with_json_every_finding_is_a_line(cli: Cli) -> None:
    found = cli.ok("doctor", "--json").objects
    assert {one["check"] for one in found} == {check.name for check in checks()}
    assert {one["check"] for one in found if one["status"] == "not checked"} >= {
        "tables", "stacks", "placement",
    }  # fmt: skip


def test_a_check_that_is_none_is_a_wrong_value(cli: Cli) -> None:
    run = cli("doctor", "--check", "nothing")
    assert run.code == 2
    assert "one of settings, tables" in run.err


def test_it_changes_nothing(cli: Cli) -> None:
    before = cli.stored()
    cli.ok("doctor", "--placement")
    assert cli.stored() == before
