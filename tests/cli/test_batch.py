"""Noun `batch`: every verb, for people and as JSON, over the application in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from fairbox import BatchBusy
from fairbox.cli import verb_input as items
from fairbox.tables.batch_values import COMPLETED_TOPIC

from tests.support.cli_runs import NOBODY, Cli

if TYPE_CHECKING:
    from pathlib import Path


def ids(batch: str, count: int, group: int = 0) -> list[str]:
    return [f"{batch}:{group}:{index}" for index in range(count)]


def test_a_fan_out_from_open_to_complete(cli: Cli) -> None:
    batch = cli.ok("batch", "open", "--user-key", "catalog-7", "--metadata", '{"run": 7}').out
    batch = batch.strip()
    added = cli.ok("batch", "add", batch, "10", "--request-id", "r1", "--group-size", "4")
    assert added.lines == [f"{batch}:0 4", f"{batch}:1 4", f"{batch}:2 2"]
    sealed = cli.ok("batch", "seal", batch, "--json").json
    assert (sealed["state"], sealed["pending"], sealed["complete"]) == ("sealed", 10, False)
    again = ("--request-id", "r1", "--group-size", "4")
    listed = cli.ok("batch", "add", batch, "10", *again, "--items")
    acked = cli.ok("batch", "ack", "-", stdin=listed.out)
    assert acked.lines == ["10 of 10 items changed", f"complete: {batch}"]
    [message] = cli.application.outbox.outstanding(COMPLETED_TOPIC)
    assert json.loads(message.body)["metadata"] == {"run": 7}


def test_open_shows_the_batch_that_is_there(cli: Cli) -> None:
    first = cli.ok("batch", "open", "--id", NOBODY, "--user-key", "one", "--json").json
    again = cli.ok("batch", "open", "--id", NOBODY, "--user-key", "two", "--json").json
    assert first == again
    assert (first["id"], first["user_key"], first["state"]) == (NOBODY, "one", "open")


def test_open_nests_a_batch(cli: Cli) -> None:
    parent = cli.opened(1)
    shown = cli.ok("batch", "open", "--parent-item", f"{parent}:0:0", "--json").json
    assert shown["parent_item"] == f"{parent}:0:0"


@pytest.mark.parametrize("text", ["{", "NaN", "[1]", '{"x": "' + "y" * 4096 + '"}'])
def test_metadata_that_is_none_is_a_usage_error(cli: Cli, text: str) -> None:
    run = cli("batch", "open", "--metadata", text)
    assert run.code == 2
    assert "metadata" in run.err
    assert cli.application.engine.items("batches") == []


def test_an_add_makes_a_request_id_and_says_it_so_that_it_can_be_repeated(cli: Cli) -> None:
    batch = cli.opened()
    run = cli.ok("batch", "add", batch, "5")
    request = run.err.removeprefix("request id: ").strip()
    assert cli.ok("batch", "add", batch, "5", "--request-id", request).out == run.out
    assert cli.application.batches.progress(batch).total == 5
    shown = cli.ok("batch", "add", batch, "5", "--request-id", request, "--json").json
    assert shown == {
        "id": batch,
        "request_id": request,
        "groups": [{"id": f"{batch}:0", "size": 5}],
    }


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("0",), "count"),
        (("5", "--group-size", "0"), "group_size"),
        (("5", "--request-id", ""), "request_id"),
        (("five",), "COUNT"),
    ],
)
def test_an_add_that_is_wrong_is_a_usage_error_and_changes_nothing(
    cli: Cli, arguments: tuple[str, ...], field: str
) -> None:
    batch = cli.opened()
    before = cli.stored()
    run = cli("batch", "add", batch, *arguments)
    assert run.code == 2
    assert field.lower() in run.err.lower()
    assert cli.stored() == before


def test_an_add_of_a_negative_count_names_the_field(cli: Cli) -> None:
    run = cli("batch", "add", cli.opened(), "--", "-3")
    assert (run.code, run.out) == (2, "")
    assert run.err.splitlines()[-1].startswith("fairbox: count: expected a whole number from 1")


def test_settling_takes_arguments_a_file_and_standard_input(cli: Cli, tmp_path: Path) -> None:
    batch = cli.opened(30)
    path = tmp_path / "ids"
    path.write_text("\n".join([*ids(batch, 20)[10:], "", "  "]))
    assert cli.ok("batch", "ack", *ids(batch, 10), "--json").json["changed"] == 10
    assert cli.ok("batch", "ack", "--file", str(path), "--json").json["changed"] == 10
    rest = "".join(f" {item}\r\n" for item in ids(batch, 30)[18:])
    shown = cli.ok("batch", "fail", "-f", "-", "--reason", "late", "--json", stdin=rest).json
    assert shown == {"ids": 12, "changed": 10, "completed": []}
    reasons = [f.reason for f in cli.application.batches.failed(batch)]
    assert reasons.count("late") == 8, "the newest that a group keeps"
    assert cli.ok("batch", "retry", "-", "--json", stdin=rest).json["changed"] == 10
    assert cli.application.batches.progress(batch).pending == 10


@pytest.mark.parametrize("verb", ["ack", "fail", "retry"])
def test_settling_nothing_is_a_usage_error(cli: Cli, verb: str) -> None:
    run = cli("batch", verb)
    assert run.code == 2
    assert "no item ids" in run.err
    run = cli("batch", verb, "--file", "/nowhere/at/all")
    assert run.code == 2
    assert "/nowhere/at/all" in run.err


def test_ids_go_in_calls_of_bounded_size(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items.calls_of, "__defaults__", (7,))
    batch = cli.opened(20)
    cli.application.batches.seal(batch)
    sizes: list[int] = []
    ack = cli.application.batches.ack

    def counted(call: list[str]) -> object:
        sizes.append(len(call))
        return ack(call)

    monkeypatch.setattr(cli.application.batches, "ack", counted)
    shown = cli.ok("batch", "ack", *ids(batch, 20), "--json").json
    assert shown == {"ids": 20, "changed": 20, "completed": [batch]}
    assert sizes == [7, 7, 6]


def test_an_unknown_id_stops_its_call_whole_and_says_what_was_done_before(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items.calls_of, "__defaults__", (4,))
    batch = cli.opened(10)
    wanted = [*ids(batch, 6), f"{batch}:0:10", f"{NOBODY}:0:0", *ids(batch, 10)[6:]]
    run = cli("batch", "ack", "--json", *wanted)
    assert (run.code, run.out) == (1, "")
    assert run.problem["type"] == "urn:fairbox:problem:unknown-items"
    assert sorted(run.problem["items"]) == sorted([f"{batch}:0:10", f"{NOBODY}:0:0"])
    assert (run.problem["ids"], run.problem["changed"]) == (4, 4)
    assert cli.application.batches.progress(batch).acked == 4
    run = cli("batch", "ack", *wanted)
    assert (run.code, len(run.err.splitlines())) == (1, 1)
    assert run.err.startswith("fairbox: never issued: ")
    assert "ids: 4" in run.err


def test_what_stays_busy_is_sent_again_and_then_fails(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = cli.opened(3)
    ack = cli.application.batches.ack
    busy = 2

    def ack_or_not(call: list[str]) -> object:
        nonlocal busy
        busy -= 1
        if busy >= 0:
            raise BatchBusy(call[1:], changed=1)
        return ack(call)

    monkeypatch.setattr(cli.application.batches, "ack", ack_or_not)
    assert cli.ok("batch", "ack", *ids(batch, 3), "--json").json["changed"] == 3
    assert len(cli.clock.sleeps) == 2
    busy = 100
    run = cli("batch", "ack", *ids(batch, 3), "--json")
    assert (run.code, run.problem["type"]) == (1, "urn:fairbox:problem:batch-busy")
    assert run.problem["changed"] == 5


@pytest.mark.parametrize("verb", ["ack", "fail", "retry"])
def test_a_dry_run_names_the_unknown_and_changes_nothing(cli: Cli, verb: str) -> None:
    batch = cli.opened(3)
    before = cli.stored()
    run = cli("batch", verb, *ids(batch, 5), "--dry-run", "--json")
    assert run.code == 1
    assert run.json == {"ids": 5, "known": 3, "unknown": ids(batch, 5)[3:]}
    assert cli("batch", verb, *ids(batch, 3), "--dry-run").lines == ["3 of 3 items can be settled"]
    assert cli.stored() == before


def test_show_tells_progress_state_and_metadata(cli: Cli) -> None:
    batch = cli.application.batches.open("k", {"a": 1}).id
    cli.application.batches.add(batch, 10, request_id="r")
    cli.application.batches.ack(ids(batch, 4))
    shown = cli.ok("batch", "show", batch, "--json").json
    assert (shown["total"], shown["acked"], shown["pending"], shown["exact"]) == (10, 4, 6, True)
    assert (shown["user_key"], shown["metadata"], shown["state"]) == ("k", {"a": 1}, "open")
    text = cli.ok("batch", "show", batch).out
    assert "pending" in text
    assert "opened_at" in text


def test_show_may_estimate(cli: Cli) -> None:
    batch = cli.opened(300, group_size=2)
    shown = cli.ok("batch", "show", batch, "--estimate", "--json").json
    assert (shown["exact"], shown["limit"]) == (False, 300)


def test_seal_waits_for_acks_that_arrive_meanwhile(cli: Cli) -> None:
    batch = cli.opened(3)
    cli.clock.events = [
        lambda: cli.application.batches.ack([f"{batch}:0:0"]),
        lambda: None,
        lambda: cli.application.batches.ack(ids(batch, 3)),
    ]
    shown = cli.ok("batch", "seal", batch, "--wait", "--json").json
    assert (shown["complete"], shown["acked"]) == (True, 3)
    assert len(cli.clock.sleeps) == 3
    assert cli.clock.sleeps == sorted(cli.clock.sleeps), "it asks ever less often"


def test_show_waits_for_an_open_batch_too(cli: Cli) -> None:
    batch = cli.opened(1)
    cli.clock.events = [
        lambda: cli.application.batches.seal(batch),
        lambda: cli.application.batches.ack([f"{batch}:0:0"]),
    ]
    assert cli.ok("batch", "show", batch, "--wait", "--json").json["complete"] is True


def test_waiting_polls_no_faster_than_every_five_seconds_in_the_end(cli: Cli) -> None:
    batch = cli.opened(1)
    run = cli("batch", "show", batch, "--wait", "--timeout", "120", "--json")
    assert (run.code, run.json["complete"]) == (1, False)
    assert max(cli.clock.sleeps) == 5.0
    assert sum(cli.clock.sleeps) == pytest.approx(120)


def test_waiting_ends_with_1_when_the_batch_is_cancelled_or_the_time_is_over(cli: Cli) -> None:
    batch = cli.opened(1)
    cli.clock.events = [lambda: cli.application.batches.cancel(batch)]
    run = cli("batch", "show", batch, "--wait")
    assert run.code == 1
    assert f"batch {batch} was cancelled" in run.err
    other = cli.opened(1)
    run = cli("batch", "seal", other, "--wait", "--timeout", "3")
    assert run.code == 1
    assert "not complete after 3 s" in run.err
    assert cli.ok("batch", "show", other, "--json").json["state"] == "sealed"


def test_missing_and_failed_list_items_and_go_on(cli: Cli) -> None:
    batch = cli.opened(10, group_size=3)
    cli.application.batches.fail([f"{batch}:0:1", f"{batch}:2:0"], "broken")
    cli.application.batches.fail([f"{batch}:1:0"])
    missing = cli.ok("batch", "missing", batch).lines
    assert missing == list(cli.application.batches.missing(batch))
    assert cli.ok("batch", "missing", batch, "-n", "2", "--json").objects == [
        {"id": item} for item in missing[:2]
    ]
    assert cli.ok("batch", "missing", batch, "--after", missing[1]).lines == missing[2:]
    assert cli.ok("batch", "failed", batch).lines == [
        f"{batch}:0:1 broken",
        f"{batch}:1:0",
        f"{batch}:2:0 broken",
    ]
    [last] = cli.ok("batch", "failed", batch, "--after", f"{batch}:1:0", "--json").objects
    assert last == {"id": f"{batch}:2:0", "reason": "broken"}


def test_what_is_missing_can_be_piped_into_ack(cli: Cli) -> None:
    batch = cli.opened(100, group_size=9)
    cli.application.batches.seal(batch)
    missing = cli.ok("batch", "missing", batch).out
    assert cli.ok("batch", "ack", "-", "--json", stdin=missing).json["completed"] == [batch]


def test_cancel_asks_and_takes_yes_and_a_dry_run(cli: Cli) -> None:
    batch = cli.opened(1)
    before = cli.stored()
    assert cli("batch", "cancel", batch, stdin="n\n").code == 1
    assert cli("batch", "cancel", batch).code == 1
    assert "not cancelled" in cli.ok("batch", "cancel", batch, "--dry-run").out
    assert cli.stored() == before
    assert cli.ok("batch", "cancel", batch, stdin="y\n").out.endswith(f"{batch} is cancelled\n")
    other = cli.opened(1)
    assert cli.ok("batch", "cancel", other, "--yes", "--json").json["state"] == "cancelled"


def test_a_complete_batch_is_not_cancelled(cli: Cli) -> None:
    batch = cli.opened()
    cli.application.batches.seal(batch)
    run = cli("batch", "cancel", batch, "--yes")
    assert (run.code, run.err) == (1, f"fairbox: batch {batch} is complete\n")


def test_list_shows_batches_of_a_state(cli: Cli) -> None:
    opened = {cli.opened() for _ in range(3)}
    sealed = cli.opened(2)
    cli.application.batches.seal(sealed)
    assert {b["id"] for b in cli.ok("batch", "list", "--json").objects} == opened
    assert len(cli.ok("batch", "list", "--limit", "2", "--json").objects) == 2
    head, line = cli.ok("batch", "list", "--state", "sealed").lines
    assert head.split() == ["ID", "STATE", "TOTAL", "OPENED_AT", "USER_KEY"]
    assert line.split()[:3] == [sealed, "sealed", "2"]
    nothing = cli.ok("batch", "list", "--state", "reaped")
    assert (nothing.out, nothing.err) == ("", "nothing\n")
    assert cli("batch", "list", "--state", "asleep").code == 2


def test_a_user_key_cannot_move_the_cursor(cli: Cli) -> None:
    cli.application.batches.open("\u202e\u009b2J")
    assert "\u009b" not in cli.ok("batch", "list").out


def test_orphans_are_reported_and_left_as_they_are(cli: Cli) -> None:
    idle = cli.opened(5)
    cli.application.batches.ack([f"{idle}:0:0"])
    cli.clock.advance(8 * 24 * 3600)
    fresh = cli.opened(1)
    before = cli.stored()
    [orphan] = cli.ok("batch", "orphans", "--json").objects
    assert (orphan["id"], orphan["fate"]) == (idle, "reaped")
    assert (orphan["progress"]["acked"], orphan["progress"]["pending"]) == (1, 4)
    assert idle in cli.ok("batch", "orphans").out
    assert fresh not in cli.ok("batch", "orphans").out
    assert cli.ok("batch", "orphans", "--open-days", "30", "--json").objects == []
    assert cli.stored() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", NOBODY, "1"),
        ("seal", NOBODY),
        ("show", NOBODY),
        ("show", "not-an-id", "--estimate"),
        ("missing", NOBODY),
        ("failed", NOBODY),
        ("cancel", NOBODY, "--yes"),
        ("cancel", NOBODY, "--dry-run"),
        ("show", NOBODY, "--wait"),
    ],
)
def test_a_batch_that_is_not_there_fails_in_one_line(cli: Cli, arguments: tuple[str, ...]) -> None:
    run = cli("batch", *arguments)
    assert (run.code, run.out) == (1, "")
    assert run.err.splitlines()[-1] == f"fairbox: there is no batch {arguments[1]!r}"
    problem = json.loads(cli("batch", *arguments, "--json").err)
    assert problem["type"] == "urn:fairbox:problem:unknown-batch"


@pytest.mark.parametrize(
    ("state", "kind"),
    [("sealed", "batch-sealed"), ("complete", "batch-ended"), ("cancelled", "batch-ended")],
)
def test_an_add_after_the_end_fails(cli: Cli, state: str, kind: str) -> None:
    batch = cli.opened(1)
    if state == "complete":
        cli.application.batches.ack([f"{batch}:0:0"])
    (cli.application.batches.cancel if state == "cancelled" else cli.application.batches.seal)(
        batch
    )
    run = cli("batch", "add", batch, "1", "--json")
    assert (run.code, run.problem["type"]) == (1, f"urn:fairbox:problem:{kind}")


def test_a_request_id_used_with_other_values_fails(cli: Cli) -> None:
    batch = cli.opened(5)
    run = cli("batch", "add", batch, "6", "--request-id", "r", "--json")
    assert (run.code, run.problem["type"]) == (1, "urn:fairbox:problem:request-conflict")
