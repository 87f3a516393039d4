"""Offloaded bodies are fetched once for all calls of a delivery, within a bound of bytes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, Unavailable
from fairbox.dispatch.ports import Limits
from fairbox.dispatch.sending.bodies_in_hand import BYTES_IN_HAND, ENVELOPE_COPIES, BodiesInHand
from fairbox.model.clock import SystemClock
from fairbox.model.messages import MAX_BODY_BYTES, MessageRef
from fairbox.tables.stored_messages import Offloaded, StoredMessage

from tests.support.application import App

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1024 * 1024
EVERY_BODY = Limits(1, MAX_BODY_BYTES)
LATER = 1e12
ID = "0199c82f-cd40-7439-b244-f5385ad9c7{:02x}"


class Bodies:
    """A store that counts fetches by key."""

    def __init__(self) -> None:
        self.fetches: Counter[str] = Counter()
        self.failing = False

    def get(self, bucket: str, key: str) -> bytes:
        self.fetches[key] += 1
        if self.failing:
            raise Unavailable("get_object", "SlowDown")
        return b"x"


def message(number: int, size: int) -> StoredMessage:
    id_ = ID.format(number)
    ref = MessageRef("orders", 0, 0, id_)
    place = Offloaded("bodies", id_)
    return StoredMessage(
        Message(topic="orders", body=b"", id=id_), ref, "ready", size, offloaded=place
    )


def in_hand(store: Bodies, limit: int = 100) -> BodiesInHand:
    return BodiesInHand(store, SystemClock(), limit)  # type: ignore[arg-type]


class TestFetching:
    @pytest.mark.guarantee("bodies-once")
    def test_calls_share_a_body_while_they_hold_it_and_after(self) -> None:
        store = Bodies()
        bodies, one = in_hand(store), message(1, 60)
        for _ in range(3):
            with (
                bodies.hold([one], EVERY_BODY, LATER) as first,
                bodies.hold([one], EVERY_BODY, LATER) as second,
            ):
                assert first[one.ref] is second[one.ref]
        assert store.fetches[one.ref.id] == 1
        bodies.forget()
        with bodies.hold([one], EVERY_BODY, LATER):
            assert store.fetches[one.ref.id] == 2

    def test_a_body_that_no_call_holds_makes_room(self) -> None:
        store = Bodies()
        bodies, one, other = in_hand(store), message(1, 60), message(2, 60)
        for stored in (one, other, one):
            with bodies.hold([stored], EVERY_BODY, LATER) as found:
                assert found[stored.ref].message.body
        assert store.fetches == {one.ref.id: 2, other.ref.id: 1}

    def test_a_message_whose_body_cannot_be_fetched_is_left_out(self) -> None:
        store = Bodies()
        bodies, one = in_hand(store), message(1, 60)
        store.failing = True
        with bodies.hold([one], EVERY_BODY, LATER) as found:
            assert found == {}
        store.failing = False
        with bodies.hold([one], EVERY_BODY, LATER) as found:
            assert found.keys() == {one.ref}

    def test_a_destination_with_a_limit_gets_the_address_of_a_larger_body(self) -> None:
        store = Bodies()
        one = message(1, 60)
        with in_hand(store).hold([one], Limits(10, 59), LATER) as found:
            assert found == {one.ref: one}
        assert not store.fetches


class TestBound:
    def waiting(self, bodies: BodiesInHand, stored: StoredMessage, got: list[str]) -> Any:
        def call() -> None:
            with bodies.hold([stored], EVERY_BODY, LATER) as found:
                got.append(stored.ref.id if found else "")

        thread = threading.Thread(target=call)
        thread.start()
        return thread

    @pytest.mark.guarantee("bodies-once")
    def test_a_call_waits_until_others_have_given_enough_back(self) -> None:
        bodies, got = in_hand(Bodies()), list[str]()
        with bodies.hold([message(1, 60)], EVERY_BODY, LATER):
            thread = self.waiting(bodies, message(2, 41), got)
            thread.join(0.05)
            assert got == []
        thread.join(60)
        assert got == [message(2, 41).ref.id]

    def test_a_body_larger_than_the_bound_goes_alone(self) -> None:
        bodies, got = in_hand(Bodies()), list[str]()
        with bodies.hold([message(1, 600)], EVERY_BODY, LATER) as found:
            assert found
            with bodies.hold([message(1, 600)], EVERY_BODY, LATER) as shared:
                assert shared
            thread = self.waiting(bodies, message(2, 1), got)
            thread.join(0.05)
            assert got == []
        thread.join(60)
        assert len(got) == 1

    def test_small_bodies_do_not_overtake_a_large_one_for_ever(self) -> None:
        bodies, got = in_hand(Bodies()), list[str]()
        with bodies.hold([message(1, 10)], EVERY_BODY, LATER):
            large = self.waiting(bodies, message(2, 600), got)
            large.join(0.05)
            small = self.waiting(bodies, message(3, 10), got)
            small.join(0.05)
            assert got == []
        large.join(60)
        small.join(60)
        assert got == [message(2, 1).ref.id, message(3, 1).ref.id]

    def test_at_the_deadline_nothing_is_sent(self) -> None:
        bodies = in_hand(Bodies())
        now = SystemClock().now()
        with (
            bodies.hold([message(1, 60)], EVERY_BODY, LATER),
            bodies.hold([message(2, 60)], EVERY_BODY, now + 0.02) as found,
        ):
            assert found == {}
        with bodies.hold([message(2, 60)], EVERY_BODY, now + 60) as found:
            assert found

    def test_copies_of_envelopes_count_for_bodies_in_place_too(self) -> None:
        bodies = in_hand(Bodies(), 100)
        inline = replace(message(1, 20), offloaded=None)
        now = SystemClock().now()
        with (
            bodies.hold([inline], Limits(10, 1000), LATER),
            bodies.hold(
                [message(2, 100 - 20 * ENVELOPE_COPIES + 1)], EVERY_BODY, now + 0.02
            ) as found,
        ):
            assert found == {}


@pytest.mark.guarantee("bodies-once")
def test_six_subscriptions_fetch_a_body_once() -> None:
    names = [f"s{n}" for n in range(6)]
    app = App(*names)
    fetched = 0
    get = app.bodies.get

    def counting(bucket: str, key: str) -> bytes:
        nonlocal fetched
        fetched += 1
        return get(bucket, key)

    app.bodies.get = counting  # type: ignore[method-assign]
    app.add(body=b"\x00\xff" * 350_000)
    app.run(30)
    assert all(app.at(name).received for name in names)
    assert fetched == 1


class TestPeak:
    """The peak of a process that has the shipped code from the dispatcher to the sockets."""

    @pytest.fixture
    def port(self) -> Iterator[int]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=serve, args=(listener,), daemon=True).start()
            yield listener.getsockname()[1]

    @pytest.mark.guarantee("bodies-once")
    @pytest.mark.parametrize(
        ("webhooks", "messages", "size"), [(6, 1, 60 * MIB), (5, 25, MIB)], ids=["60-mib", "125"]
    )
    def test_a_visit_stays_below_three_times_the_largest_body_and_64_mib(
        self, port: int, webhooks: int, messages: int, size: int
    ) -> None:
        found = run(port, webhooks, messages, size)
        assert found["removed"] == messages
        assert found["peak"] < 3 * size + 64 * MIB

    def test_the_bound_is_what_the_function_has(self) -> None:
        assert 3 * MAX_BODY_BYTES + 2 * BYTES_IN_HAND <= 512 * MIB - 160 * MIB


def run(port: int, *arguments: int) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.support.large_body_visit", str(port)]
    done = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, int] = json.loads(done.stdout)
    return answer


def serve(listener: socket.socket) -> None:
    """Answer a GET with as many bytes as its path ends in, and a POST with 200."""
    with suppress(OSError):
        while True:
            threading.Thread(target=converse, args=(listener.accept()[0],), daemon=True).start()


def converse(connection: socket.socket) -> None:
    with suppress(OSError), connection, connection.makefile("rb") as lines:
        while first := lines.readline():
            length = 0
            while line := lines.readline().strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            while length:
                length -= len(lines.read(min(length, MIB)))
            if first.startswith(b"GET"):
                size = int(first.split()[1].rpartition(b"-")[2].partition(b"?")[0])
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
                for _ in range(0, size, MIB):
                    connection.sendall(bytes(min(size, MIB)))
            else:
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
