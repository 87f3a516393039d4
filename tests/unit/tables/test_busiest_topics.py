"""The list of the busiest topics: stable, bounded, and with those in trouble."""

from __future__ import annotations

from fairbox.tables.topic_cache import MAX_BUSIEST, TROUBLED, BusiestTopics, ranked
from hypothesis import given
from hypothesis import strategies as st

NAMES = [f"t{number:02d}" for number in range(40)]
counts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 1000))


def test_the_busiest_are_listed_and_any_others_where_there_is_room() -> None:
    busy = {name: 100 + number for number, name in enumerate(NAMES[10:])}
    assert ranked((), NAMES, busy, ()) == set(NAMES[-MAX_BUSIEST:])
    assert ranked((), NAMES[:5], {}, ()) == set(NAMES[:5])
    assert ranked((), NAMES, {"t39": 1}, ()) == {"t39", *NAMES[: MAX_BUSIEST - 1]}


def test_a_listed_topic_is_replaced_only_by_one_that_is_more_than_twice_as_busy() -> None:
    listed = NAMES[:MAX_BUSIEST]
    busy = dict.fromkeys(listed, 50)
    assert ranked(listed, NAMES, busy | {"t30": 100}, ()) == set(listed)
    assert "t30" in ranked(listed, NAMES, busy | {"t30": 101}, ())


def test_topics_in_trouble_get_half_of_the_places_and_keep_them() -> None:
    busy = dict.fromkeys(NAMES[:MAX_BUSIEST], 100)
    quiet = NAMES[MAX_BUSIEST:]
    found = ranked((), NAMES, busy, quiet)
    assert found & set(quiet) == set(quiet[:TROUBLED])
    assert ranked(found, NAMES, busy, quiet[::-1]) & set(quiet) == set(quiet[:TROUBLED])


def test_a_topic_that_is_gone_is_not_listed() -> None:
    assert ranked(["gone"], ["t00"], {"gone": 9}, ["gone"]) == {"t00"}


@given(st.sets(st.sampled_from(NAMES)), counts, st.lists(st.sampled_from(NAMES), unique=True))
def test_the_list_is_bounded_and_a_second_ranking_changes_nothing(
    listed: set[str], deliveries: dict[str, int], troubled: list[str]
) -> None:
    found = ranked(listed, NAMES, deliveries, troubled)
    assert len(found) == MAX_BUSIEST
    assert ranked(found, NAMES, deliveries, troubled) == found


def test_topics_join_in_their_order_up_to_the_limit() -> None:
    there = BusiestTopics(frozenset({"a", "b"}), 7, 3)
    assert there.joined(["b", "z", "c"], limit=3) == BusiestTopics(frozenset("abz"), 7, 3)
    assert there.joined(["c"], limit=1) == there
