"""The failures of a message stay small in its item, and whole in its dead letter."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import RetryPolicy, Subscription, TopicConflict
from fairbox.dispatch.ports import Outcome
from fairbox.model.bodies import OFFLOAD_OVER
from fairbox.model.messages import MAX_HEADERS_BYTES
from fairbox.model.topics import MAX_SUBSCRIPTIONS
from fairbox.tables.item_size import item_size
from fairbox.tables.keys import message_key
from fairbox.tables.message_states import LEAST_TEXT, bare, fitted
from fairbox.tables.stored_messages import Failure, SubscriptionState, read_message, states_value
from fairbox.testing.application import DELIVERIES, OUTBOX
from fairbox.testing.memory_tables import MAX_ITEM

from tests.support.application import App

if TYPE_CHECKING:
    from fairbox.tables.keys import Item


def random_bytes(count: int) -> bytes:
    """Return bytes that cannot be compressed."""
    return random.Random(count).randbytes(count)


LONG = "é" * 200  # as long as an outcome's text may be, in two bytes each


def refusing(app: App, *names: str, error: str = LONG) -> None:
    """Let each of these subscriptions refuse every message, through no fault of its own."""
    for name in names:
        app.at(name).answer = lambda _: Outcome("refused", error, fault="message")


def names_of(count: int) -> list[str]:
    return [f"s{n:02d}".ljust(64, "x") for n in range(count)]


def death(subscriptions: int, body: int) -> tuple[int, float]:
    """Let all of so many subscriptions refuse a message until it is dead, each with a new error.

    Returns:
        The number of attempts, and their write units without the move to the dead letters.
    """
    names = [f"hook-{n}" for n in range(subscriptions)]
    app = App(*names, retry=RetryPolicy())
    calls = 0

    def refuse(_: object) -> Outcome:
        nonlocal calls
        calls += 1
        return Outcome("refused", f"HTTP 422: {calls} ".ljust(200, "e"), fault="message")

    for name in names:
        app.at(name).answer = refuse
    app.add(body=random_bytes(body))
    app.meter.reset()
    while app.outbox.outstanding_count("orders"):
        app.relay()
        app.visit()
        app.clock.advance(1)

    (letter,) = app.outbox.dead("orders")
    assert letter.stored is not None
    assert len(letter.subscriptions) == subscriptions
    for name in names:
        history = letter.stored.state(name).history
        assert [f.attempt for f in history] == list(range(1, 11))
        assert history[-1].error
    costs = app.meter.reading().costs.items()
    burial = sum(
        c.wru for (call, table, _), c in costs if table == DELIVERIES or call == "delete_item"
    )
    return calls, sum(c.wru for _, c in costs) - burial


class TestCost:
    @pytest.mark.guarantee("refused-by-all")
    @pytest.mark.parametrize("subscriptions", [1, 5, 60, 100])
    def test_an_attempt_of_a_message_of_1_kb_costs_at_most_a_write_unit(
        self, subscriptions: int
    ) -> None:
        attempts, wru = death(subscriptions, body=700)
        assert wru <= attempts

    def test_over_all_sizes_up_to_1_kb_it_costs_at_most_a_tenth_more(self) -> None:
        died = [death(1, body) for body in range(0, 880, 80)]
        assert sum(wru for _, wru in died) <= 1.1 * sum(attempts for attempts, _ in died)

    @pytest.mark.guarantee("refused-by-all")
    def test_attempts_of_one_visit_are_one_write_and_stay_together(self) -> None:
        names = ["a", "b", "c"]
        app = App(*names, retry=RetryPolicy(max_attempts=5))
        refusing(app, *names)
        app.add()
        app.relay()
        for _ in range(3):
            app.clock.advance(60)
            app.writes()
            app.visit()
            assert app.writes() == {"update_item": 1}
        states = read_message(app.lying()[0]).states
        assert {(s.attempts, s.due) for s in states.values()} == {(4, states["a"].due)}


class TestDeath:
    @pytest.mark.guarantee("refused-by-all")
    def test_a_message_dies_for_a_hundred_subscriptions_though_it_is_as_large_as_can_be(
        self,
    ) -> None:
        """The reserve beside body and headers takes the greatest state that there can be."""
        names = names_of(MAX_SUBSCRIPTIONS)
        app = App(*names, retry=RetryPolicy(max_attempts=12))
        refusing(app, *names)
        app.add(
            body=random_bytes(OFFLOAD_OVER - 20),
            headers={f"h{n}": "v" * 250 for n in range(MAX_HEADERS_BYTES // 260)},
            partition_key="k" * 256,
        )
        largest = 0
        while app.lying():
            app.run(120, step=40)
            largest = max([largest, *map(item_size, app.lying())])
        (letter,) = app.outbox.dead("orders")
        assert letter.subscriptions == set(names)
        assert letter.stored is not None
        for state in letter.stored.states.values():
            assert [f.attempt for f in state.history] == list(range(3, 13))
            assert state.history[-1].error == LONG
        assert largest < MAX_ITEM - 40_000

    def test_a_state_that_does_not_fit_loses_its_history_first(self) -> None:
        names = names_of(MAX_SUBSCRIPTIONS)
        app = App(*names, retry=RetryPolicy(max_attempts=3))
        refusing(app, *names)
        app.add(body=random_bytes(OFFLOAD_OVER))
        crowd(app, MAX_ITEM - item_size(app.lying()[0]) - 18_000)
        app.run(300)
        (letter,) = app.outbox.dead("orders")
        assert letter.subscriptions == set(names)
        assert letter.stored is not None
        assert all(s.attempts == 3 for s in letter.stored.states.values())
        assert app.lying() == []

    @pytest.mark.guarantee("refused-by-all")
    @pytest.mark.parametrize("carried", [False, True])
    def test_a_message_whose_state_cannot_be_written_at_all_dies_at_once(
        self, *, carried: bool
    ) -> None:
        names = names_of(MAX_SUBSCRIPTIONS)
        app = App(*names)
        refusing(app, *names)
        app.add(body=random_bytes(OFFLOAD_OVER), **(batch_item(app) if carried else {}))
        crowd(app, MAX_ITEM - item_size(app.lying()[0]) - 7_500)
        app.run(120)
        (letter,) = app.outbox.dead("orders")
        assert letter.subscriptions == set(names)
        assert letter.reason == "the attempts of its subscriptions do not fit its item"
        assert [i for i in app.lying() if "orders" in i["pk"]["S"]] == []
        app.mark()
        assert app.row().dead == 1

    def test_the_archive_has_each_attempt(self) -> None:
        app = App("a", "b", retry=RetryPolicy(max_attempts=10))
        refusing(app, "a", "b", error="HTTP 500")
        app.add()
        app.run(4000, step=10)
        app.mark()
        failed = [(e["subscription"], e["attempt"], e["reason"]) for e in app.events("failed")]
        assert sorted(failed) == [(s, n, "HTTP 500") for s in "ab" for n in range(1, 11)]


def crowd(app: App, more: int) -> None:
    """Let the one message in the outbox carry so many bytes of a newer release."""
    (item,) = app.lying()
    app.engine.put_item(TableName=OUTBOX, Item=item | {"zz": {"B": random_bytes(more)}})


def batch_item(app: App) -> dict[str, Any]:
    """Return the field of a message that carries the one item of a batch."""
    batch = app.batches.open()
    (group,) = app.batches.add(batch.id, 1, request_id="r")
    app.batches.seal(batch.id)
    return {"batch_item": next(iter(group.item_ids()))}


class TestOldItems:
    """Items of 0.1 and 0.2 hold ten failures with whole texts for each subscription."""

    def old(self, app: App) -> Item:
        history = tuple(Failure(n, 1_700_000_000_123 + n, "x" * 200) for n in range(1, 11))
        states = {"a": SubscriptionState(10, 0, history), "b": SubscriptionState(10, 0, history)}
        (ref,) = app.add()
        key: Any = message_key(ref)
        (item,) = app.lying()
        item = item | {"s": states_value(states)}
        app.engine.put_item(TableName=OUTBOX, Item=item)
        assert key.items() <= item.items()
        return item

    def test_they_are_read_as_they_are_and_shrunk_at_their_next_write(self) -> None:
        app = App("a", "b", retry=RetryPolicy(max_attempts=20))
        refusing(app, "a")
        before = self.old(app)
        read = read_message(before).states["a"].history
        assert [len(f.error) for f in read] == [200] * 10
        assert item_size(before) > 4 * 1024
        app.mark()
        app.clock.advance(70)
        app.sweep()
        app.visit()
        (item,) = app.lying()
        assert item_size(item) <= 1024
        state = read_message(item).states["a"]
        assert [f.attempt for f in state.history] == list(range(2, 12))
        assert state.history[0].at == 1_700_000_000_000

    def test_new_items_have_the_shape_that_old_functions_read(self) -> None:
        app = App("a", retry=RetryPolicy(max_attempts=20))
        refusing(app, "a")
        app.add()
        app.run(60)
        (item,) = app.lying()
        state = item["s"]["M"]["a"]["M"]
        assert state.keys() == {"n", "d", "h"}
        assert all([*map("".join, f["L"])] == ["N", "N", "S"] for f in state["h"]["L"])


class TestFitting:
    def test_texts_fill_the_kb_that_is_paid_for_and_no_more(self) -> None:
        app = App("a", "b")
        for body in range(0, 900, 60):
            app.add(body=random_bytes(body))
        history = tuple(Failure(n, 1_700_000_000_123, "x" * 200) for n in range(1, 6))
        for item in app.lying():
            stored = read_message(
                item | {"s": states_value({"a": SubscriptionState(5, 9, history)})}
            )
            cut = fitted(stored)
            without = item_size(item | {"s": states_value(bare_texts(stored))})
            now = item_size(item | {"s": states_value(cut.states)})
            assert -(-now // 1024) <= -(-(without + 32 + LEAST_TEXT) // 1024)
            assert cut.states["a"].history[-1].error
            assert fitted(cut) == cut

    def test_the_newest_texts_come_first(self) -> None:
        app = App("a")
        app.add(body=random_bytes(400))
        history = tuple(Failure(n, 0, f"{n}" * 200) for n in range(1, 10))
        stored = read_message(
            app.lying()[0] | {"s": states_value({"a": SubscriptionState(9, 9, history)})}
        )
        lengths = [len(f.error) for f in fitted(stored).states["a"].history]
        assert lengths[-1] == 200
        assert lengths[3:] == sorted(lengths[3:])
        assert min(lengths) > 0

    def test_bare_states_keep_what_decisions_need(self) -> None:
        app = App("a")
        app.add()
        history = (Failure(1, 1, "x"), Failure(2, 2, "y"))
        stored = read_message(
            app.lying()[0] | {"s": states_value({"a": SubscriptionState(2, 9, history, dead=True)})}
        )
        assert bare(stored).states == {
            "a": SubscriptionState(2, 9, (Failure(2, 2, ""),), dead=True)
        }


def bare_texts(stored: Any) -> dict[str, SubscriptionState]:
    return {
        name: SubscriptionState(
            s.attempts, s.due, tuple(Failure(f.attempt, f.at, "") for f in s.history), s.dead
        )
        for name, s in stored.states.items()
    }


class TestLimitOfSubscriptions:
    def test_one_more_than_a_hundred_is_refused_and_nothing_is_added(self) -> None:
        app = App()
        app.outbox.add_subscriptions(
            Subscription("orders", f"s{n}", "sqs:http://q/q") for n in range(MAX_SUBSCRIPTIONS - 1)
        )
        more = [Subscription("orders", name, "sqs:http://q/q") for name in ("x", "y")]
        with pytest.raises(TopicConflict, match="100 subscriptions at most"):
            app.outbox.add_subscriptions(more)
        assert len(app.outbox.topic("orders").subscriptions) == MAX_SUBSCRIPTIONS - 1
        app.outbox.add_subscription(more[0])
        with pytest.raises(TopicConflict, match="'orders': 100 subscriptions at most"):
            app.outbox.add_subscription(more[1])

    def test_one_that_is_there_is_replaced_all_the_same(self) -> None:
        app = App()
        app.outbox.add_subscriptions(
            Subscription("orders", f"s{n}", "sqs:http://q/q") for n in range(MAX_SUBSCRIPTIONS)
        )
        app.outbox.add_subscription(Subscription("orders", "s7", "sqs:http://q/other"))
        assert len(app.outbox.topic("orders").subscriptions) == MAX_SUBSCRIPTIONS
