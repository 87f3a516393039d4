"""The account of a chaos run finds each violation, and none in a correct run."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from local.accounting import journal
from local.chaos.__main__ import main
from tests.local.chaos_story import (
    COPIED,
    EVENTS,
    HOOKED,
    ITEMS,
    JOBS,
    LINES,
    ORDERED,
    QUEUED,
    Story,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """One message of each class, everything well."""
    story = Story(tmp_path)
    story.delivers("m1", QUEUED, "queue", story.sends("m1", QUEUED))
    dead = story.sends("m2", HOOKED)
    story.delivers("m2", HOOKED, "queue", dead)
    story.stands("dead", HOOKED, "hook", dead)
    story.sends("m3", JOBS)
    story.says("cancelled", "m3", JOBS)
    story.delivers("m4", ORDERED, "hook", story.sends("m4", ORDERED, key="a"))
    story.opens("b1", "message", "ack", "fail")
    story.delivers("b1.0", ITEMS, "pull", story.sends("b1.0", ITEMS))
    story.announces("b1", "c1", acked=2, failed=1)
    return story


def test_nothing_is_found_where_each_message_is_in_one_class(story: Story) -> None:
    made = story.told()
    assert made.findings == []
    total = asdict(made.total)
    assert total["sent"] == 6  # one of them for two takers
    shown = {name: count for name, count in total.items() if count and name != "sent"}
    assert shown == {"topic": "all", "delivered": 4, "dead": 1, "cancelled": 1}
    assert asdict(made.batches) == {
        "filled": 1,
        "announced": 1,
        "repeats": 0,
        "items": 3,
        "failed_items": 1,
    }


def test_what_was_acknowledged_and_is_nowhere_is_lost(story: Story) -> None:
    story.sends("gone", QUEUED)
    assert story.found() == [("lost", "gone")]
    assert story.told().total.lost == 1


def test_a_message_that_one_of_two_takers_lacks_is_lost_for_that_one(story: Story) -> None:
    story.delivers("half", HOOKED, "queue", story.sends("half", HOOKED))
    (finding,) = story.told().findings
    assert (finding.kind, finding.taker, finding.name) == ("lost", "hook", "half")


def test_a_business_row_is_a_message_even_if_nobody_was_told(story: Story) -> None:
    story.tries("row", QUEUED, how="transact")
    assert story.found() == []
    story.state.append(("business", {"n": "row"}))
    assert story.found() == [("lost", "row")]


def test_a_transaction_that_was_acknowledged_has_its_row(story: Story) -> None:
    story.delivers("t", QUEUED, "queue", story.sends("t", QUEUED, how="transact"))
    assert story.found() == [("no business row", "t")]


def test_what_nobody_was_told_of_may_be_there_or_not(story: Story) -> None:
    story.tries("never", QUEUED)
    story.delivers("perhaps", QUEUED, "queue", story.tries("perhaps", QUEUED))
    assert story.found() == []
    assert story.told().total.unknown == 1


def test_what_nobody_tried_is_a_stranger(story: Story) -> None:
    story.arrives("stranger", QUEUED, "queue", "id-999")
    assert story.found() == [("nobody published", "stranger")]


def test_copies_are_counted_and_allowed(story: Story) -> None:
    id_ = story.sends("twice", QUEUED)
    story.delivers("twice", QUEUED, "queue", id_)
    story.arrives("twice", QUEUED, "queue", id_)
    assert story.found() == []
    assert story.told().total.again == 1


def test_what_is_left_is_a_class_and_a_finding(story: Story) -> None:
    story.stands("outstanding", QUEUED, "queue", story.sends("left", QUEUED))
    assert story.found() == [("still outstanding", "left")]
    assert story.told().total.outstanding == 1


def test_no_message_is_in_two_classes(story: Story) -> None:
    id_ = story.sends("both", JOBS)
    story.says("cancelled", "both", JOBS)
    story.stands("dead", JOBS, "pull", id_)
    assert story.found() == [("in two classes", "both")]


def test_a_cancel_of_unknown_outcome_excuses_its_message_and_no_other(story: Story) -> None:
    story.sends("asked", QUEUED)
    story.says("cancel", "asked", QUEUED)
    assert story.found() == []
    story.says("kept", "asked", QUEUED)
    assert story.found() == [("lost", "asked")]


def test_where_a_cancel_of_unknown_outcome_met_a_delivery_the_ledger_says_which_won(
    story: Story,
) -> None:
    id_ = story.sends("asked", EVENTS)
    story.says("cancel", "asked", EVENTS)
    story.arrives("asked", EVENTS, "bus", id_)
    assert story.found() == []
    (row,) = (r for r in story.told().rows if r.topic == EVENTS)
    assert (row.delivered, row.cancelled, row.also) == (0, 1, 1)
    story.records(EVENTS, "bus", id_)
    assert story.found() == []
    (row,) = (r for r in story.told().rows if r.topic == EVENTS)
    assert (row.delivered, row.cancelled, row.also) == (1, 0, 0)
    story.state.pop()
    story.says("kept", "asked", EVENTS)
    assert story.found() == [("not in the ledger", "asked")]


def test_a_delivery_that_the_ledger_lacks_is_found(story: Story) -> None:
    story.arrives("silent", QUEUED, "queue", story.sends("silent", QUEUED))
    assert story.found() == [("not in the ledger", "silent")]


def test_a_delivery_of_the_ledger_that_nobody_saw_is_found(story: Story) -> None:
    id_ = story.tries("claimed", QUEUED)
    story.records(QUEUED, "queue", id_)
    assert story.found() == [("recorded, and never seen", id_)]


@pytest.mark.parametrize(("topic", "taker"), [(ORDERED, "hook"), (LINES, "pull")])
def test_first_deliveries_of_a_key_come_in_the_order_of_ids(
    story: Story, topic: str, taker: str
) -> None:
    first, second, other = (story.sends(n, topic, key=n[0]) for n in ("k1", "k2", "l1"))
    story.delivers("l1", topic, taker, other)
    story.delivers("k1", topic, taker, first)
    story.delivers("k2", topic, taker, second)
    story.arrives("k1", topic, taker, first)  # again, which is allowed
    assert story.found() == []
    story.arrived = [line for line in story.arrived if line.get("n") != "k1"]
    story.arrives("k1", topic, taker, first)
    assert story.found() == [("out of order", "k1")]


def test_where_no_order_is_promised_none_is_asked_for(story: Story) -> None:
    first, second = story.sends("u1", QUEUED), story.sends("u2", QUEUED)
    story.delivers("u2", QUEUED, "queue", second)
    story.delivers("u1", QUEUED, "queue", first)
    assert story.found() == []


def test_an_edit_that_was_acknowledged_arrives(story: Story) -> None:
    id_ = story.sends("edited", JOBS)
    story.says("edited", "edited", JOBS)
    story.delivers("edited", JOBS, "pull", id_)
    assert story.found() == [("edit lost", "edited")]
    story.arrives("edited", JOBS, "pull", id_, edition=1)
    assert story.found() == []


def test_one_event_has_one_id_within_its_window(story: Story) -> None:
    first = story.sends("event", EVENTS, how="post")
    story.delivers("event", EVENTS, "bus", first)
    assert story.found() == []
    story.delivers("event", EVENTS, "bus", "id-900")
    assert story.found() == [("published twice in its window", "event")]


def test_what_another_topic_took_over_is_where_that_has_it(story: Story) -> None:
    id_ = story.sends("copy", COPIED)
    story.records(COPIED, "copy", id_)
    story.arrives("copy", "chaos.copies", "pull", id_)
    assert story.found() == []
    story.stands("dead", "chaos.copies", "pull", id_)
    made = story.told()
    assert (made.total.dead, made.findings) == (2, [])


@pytest.mark.parametrize(
    ("announced", "found"),
    [
        ([], "never announced"),
        ([("c2", 2, 0), ("c3", 2, 0)], "announced twice"),
        ([("c2", 1, 0)], "wrong total"),
        ([("c2", 1, 1)], "wrong number of failed items"),
    ],
)
def test_a_batch_is_announced_once_and_with_the_right_figures(
    story: Story, announced: list[tuple[str, int, int]], found: str
) -> None:
    story.opens("b2", "ack", "ack")
    for id_, acked, failed in announced:
        story.announces("b2", id_, acked, failed)
    assert story.found() == [(found, "b2")]


def test_an_announcement_delivered_again_is_the_same_one(story: Story) -> None:
    story.announces("b1", "c1", acked=2, failed=1)
    assert story.found() == []
    assert story.told().batches.repeats == 1


def test_a_poisoned_item_is_a_failed_one(story: Story) -> None:
    story.opens("b2", "poison", "ack")
    story.stands("dead", ITEMS, "pull", story.sends("b2.0", ITEMS))
    story.announces("b2", "c2", acked=1, failed=1)
    assert story.found() == []


def test_counts_that_are_not_the_true_ones_are_found(story: Story) -> None:
    true = {"ready": 0, "later": 0, "dead": 1}
    story.state.append(("counts", {"topic": QUEUED, "counted": true, "true": true}))
    assert story.found() == []
    story.state.append(("counts", {"topic": JOBS, "counted": true | {"ready": 1}, "true": true}))
    assert [(f.kind, f.topic) for f in story.told().findings] == [("miscounted", JOBS)]


def test_the_command_exits_with_1_and_names_what_is_lost(
    story: Story, capsys: pytest.CaptureFixture[str]
) -> None:
    story.told()
    main(["account", str(story.folder)])
    assert "none is lost" in capsys.readouterr().out
    story.arrived = [line for line in story.arrived if line.get("n") != "m1"]
    story.told()
    with pytest.raises(SystemExit, match=re.escape("the first: lost chaos.queued queue m1")):
        main(["account", str(story.folder)])


def test_a_line_that_a_kill_cut_off_is_left_out_and_harms_no_later_one(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    first = journal.Journal(path)
    first.write(n="whole")
    first.close()
    with path.open("ab") as file:
        file.write(b'{"n":"cu')
    second = journal.Journal(path)
    second.write(n="next")
    second.close()
    assert list(journal.read(path)) == [{"n": "whole"}, {"n": "next"}]
