"""The rules of fairness, each by its name: who is sent what, in which cycle."""

from __future__ import annotations

import json
from math import inf
from random import Random
from threading import Barrier

import pytest
from fairbox import Unavailable
from fairbox.aws.feed_sockets import FeedSockets
from fairbox.feeds.asking import ANSWER_BYTES
from fairbox.feeds.frames import POSTS, Posting, Sent, Slice, frames_of, slices_of
from fairbox.tables.feed_topics import Bundle

from benchmarks.feed_audience import Audience, DueClock, Lanes
from benchmarks.feeds import KEYS, broadcast, skew_units, spread_of_shards
from benchmarks.latency import percentile


def a_slice(topic: str, number: int, size: int = 1060, *, private: bool = False) -> Slice:
    entry = json.dumps([topic, number, "x" * (size - len(json.dumps([topic, number, ""])))])
    return Slice(topic, private, entry.encode())


def sent(slices: list[Slice]) -> list[list[tuple[str, int]]]:
    """Return topic and number of what each frame brings."""
    frames = frames_of(slices)
    assert all(len(one) <= ANSWER_BYTES for one in frames)
    return [[(topic, number) for topic, number, _ in json.loads(one)["t"]] for one in frames]


def test_constraint_1_clients_get_messages_with_little_latency() -> None:
    audience = Audience(250, KEYS)
    audience.publish_each(0.05, 100, KEYS)
    delays, (plain, _) = audience.delays(), broadcast(100)
    assert len(delays) == len(plain) == 25_000
    assert percentile(delays, 0.5) < 0.15
    assert percentile(delays, 0.99) < 0.25 < percentile(plain, 0.5)


def test_constraint_2_no_client_dominates() -> None:
    lanes, order = Lanes(DueClock(), Random(1), lanes=1), list[str]()
    lanes.took = lambda id_, *_: order.append(id_)
    frames = {"busy": [b"1"] * 50} | {str(n): [b"1"] * 2 for n in range(99)}
    posting = Posting(FeedSockets(lanes), lanes.clock, Random(1), inf, lanes.run)
    assert posting.send(frames, inf) == Sent(248)
    assert set(order[:100]) == set(order[100:200]) == set(frames)
    assert order[:100] != order[100:200]  # nobody is always the last one
    assert set(order[200:]) == {"busy"}


@pytest.mark.parametrize("depth", [1, 20, 64])
def test_constraint_3_a_message_reaches_all_clients_of_a_shard_in_one_cycle(depth: int) -> None:
    assert skew_units(depth) == 792


def test_constraint_3_a_shard_of_few_clients_does_not_run_ahead_of_others() -> None:
    assert spread_of_shards(12, 20) < 0.4


@pytest.mark.parametrize(("direct", "most"), [(0, 4), (1000, 7)])
def test_constraint_4_no_topic_starves_another(direct: int, most: int) -> None:
    shared = [a_slice(f"t{n % 100}", n // 100) for n in range(2000)]
    frames = sent([*(a_slice("p", n, private=True) for n in range(direct)), *shared])
    for topic in range(100):
        turns = [at for at, frame in enumerate(frames) if f"t{topic}" in dict(frame)]
        assert len(turns) == 20
        assert max(b - a for a, b in zip([-1, *turns], turns, strict=False)) <= most


def test_a_topic_with_large_messages_waits_no_longer_than_others() -> None:
    large = [a_slice("large", n, 8_000) for n in range(40)]
    small = [a_slice("small", n, 200) for n in range(40)]
    assert all({"large", "small"} == dict(frame).keys() for frame in sent([*small, *large]))


def test_constraint_5_idle_topics_and_clients_cost_nothing() -> None:
    audience = Audience(1, KEYS)
    audience.follow("other", KEYS[1:])
    audience.publish(KEYS[0], "first")
    audience.visit()
    audience.units()
    audience.publish(KEYS[0], "1")
    audience.visit()
    # the head, the lease, a page of rows; the log and the head
    assert (audience.units(), audience.counts["frames"]) == ((3, 2), 2)


def test_active_and_ready_only_is_who_gets_a_frame() -> None:
    lanes = Lanes(DueClock(), Random(1), lanes=1)
    lanes.stuck = frozenset({"stuck"})
    tries = list[str]()
    posting = Posting(FeedSockets(lanes), lanes.clock, Random(1), inf, lanes.run)
    lanes.took = lambda id_, *_: tries.append(id_)
    assert posting.send({"stuck": [b"1"] * 9, "ready": [b"1"] * 3}, inf) == Sent(3, ["stuck"])
    assert tries == ["ready"] * 3
    assert lanes.clock.now() < 1e6 + 1.2  # two tries of half a second


def test_coalescing_news_of_a_topic_is_one_slice_as_large_as_a_bundle() -> None:
    bundles = [Bundle(n, n, (f'"i{n}",{n}',), 0) for n in range(1, 41)]
    firsts = [json.loads(one.entry)[1:3] for one in slices_of("t", bundles, private=False)]
    assert firsts == [[0, 16], [16, 32], [32, 40]]

    # not across a gap, and not beyond 24 KB
    wide = [Bundle(n, n, (f'"i{n}","{"x" * 9_000}"',), 0) for n in (1, 2, 3, 5)]
    firsts = [json.loads(one.entry)[1:3] for one in slices_of("t", wide, private=False)]
    assert firsts == [[0, 2], [2, 3], [4, 5]]


def test_direct_first_private_messages_go_before_others_in_half_a_frame() -> None:
    private = [a_slice("p", n, private=True) for n in range(60)]
    frames = sent([*(a_slice(f"t{n}", 0) for n in range(40)), *private])
    assert [sum(topic == "p" for topic, _ in frame) for frame in frames] == [16, 15, 19, 10]
    assert frames[0][0] == ("p", 0)


def test_one_a_topic_a_cycle() -> None:
    frames = sent([a_slice(f"t{n % 10}", n // 10) for n in range(30)])  # which one frame could hold
    assert frames == [[(f"t{n}", turn) for n in range(10)] for turn in range(3)]


def test_unserved_first() -> None:
    frames = sent([a_slice(f"t{n % 40}", n // 40) for n in range(120)])
    assert frames[1][:10] == [(f"t{n}", 0) for n in range(30, 40)]


def test_mini_batches_a_bundle_reaches_clients_as_a_whole() -> None:
    audience = Audience(3, KEYS[:2])
    audience.publish(KEYS[0], *"0123456789abcdef")
    audience.publish(KEYS[1], "beside it")
    audience.visit()
    assert audience.counts["frames"] == 3


def test_who_does_not_read_slows_nobody_but_for_a_second() -> None:
    audience = Audience(250, KEYS[:1], stuck=25)
    audience.publish_each(0.25, 240, KEYS[:1])
    delays = audience.delays()
    assert audience.counts["out"] == 25
    assert percentile(delays, 0.5) < 0.1
    assert percentile(delays, 0.99) < 0.5
    assert delays[-1] < 1.1


def test_overload_sheds_age_and_no_clients() -> None:
    audience = Audience(250, KEYS[:1], rate=12.5)
    audience.publish_each(1.0, 600, KEYS[:1])
    delays = audience.delays()
    assert len(delays) == 250 * 600  # received, or told as lost
    assert (audience.counts["out"], delays[-1] < 45) == (0, True)


def test_so_many_posts_are_in_flight_that_few_clients_do_not_stop_them() -> None:
    all_there = Barrier(POSTS, timeout=30)
    posting = Posting(FeedSockets(None), DueClock(), Random(1), inf)
    posting._run([lambda: void(all_there.wait())] * POSTS)


def void(_: object) -> None:
    """Return nothing, as posts do."""


def test_posts_keep_the_rate() -> None:
    lanes = Lanes(DueClock(), Random(1))
    posting = Posting(FeedSockets(lanes), lanes.clock, Random(1), 100, lanes.run)
    posting.send({str(n): [b"1"] * 2 for n in range(POSTS)}, inf)
    assert lanes.clock.now() - 1e6 == pytest.approx(2 * POSTS / 100, abs=0.05)


def test_no_post_waits_for_its_turn_beyond_the_deadline() -> None:
    lanes = Lanes(DueClock(), Random(1))
    posting = Posting(FeedSockets(lanes), lanes.clock, Random(1), 10, lanes.run)
    with pytest.raises(Unavailable):
        posting.send({str(n): [b"1"] for n in range(1000)}, lanes.clock.now() + 20)
    assert lanes.clock.now() - 1e6 <= 20.1  # a function is killed 20 s later
