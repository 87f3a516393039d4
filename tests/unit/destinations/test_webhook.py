"""Webhooks against a real server on loopback: verdicts, time limits, addresses, signatures, TLS."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import hashlib
import hmac
import ipaddress
import socket
import struct
import threading
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest
from fairbox.cloudevents import parse_binary
from fairbox.destinations.addresses import is_public, within
from fairbox.destinations.outbound import Caller, Url
from fairbox.destinations.signatures import parse_secret, signed_headers
from fairbox.destinations.webhook import Webhook
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.errors import InvalidInput, NotConfigured, Unavailable
from fairbox.tables.stored_messages import Offloaded

from tests.support.destination_examples import TIME, FixedClock, stored
from tests.support.webhook_server import OK, Server, contexts, status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(tls=contexts()[0])
    yield made
    made.close()


def test_the_body_arrives_byte_for_byte_with_the_event_in_headers(server: Server) -> None:
    body = bytes(range(256))
    headers = {"ce-type": "paid é", "X-Reason": "é", "Host": "evil", "webhook-id": "forged",
               "traceparent": "00-1-2-01", "Content-Length": "3", "authorization": 'Bearer a"b%20',
               "tracestate": "a=1, b=2", "X-Padded": " a  b "}  # fmt: skip
    message = stored(body, content_type="image/png", headers=headers, partition_key="k 1")
    assert server.webhook().send([message], 60) == [TAKEN]
    first, got, received = server.requests[0]
    assert first == "POST /hook?token=t HTTP/1.1"
    assert received == body
    event = parse_binary(got, received)
    assert (event.id, event.type, event.partitionkey) == (message.message.id, "paid é", "k 1")
    assert event.datacontenttype == "image/png"
    assert got["host"] == f"localhost:{server.port}"
    assert (got["x-reason"], got["x-padded"]) == ("%C3%A9", "a  b")
    assert (got["authorization"], got["tracestate"]) == ('Bearer a"b%20', "a=1, b=2")
    assert (got["ce-type"], got["traceparent"]) == ("paid%20%C3%A9", "00-1-2-01")
    assert got["webhook-id"] == message.message.id
    assert got["webhook-timestamp"] == str(TIME)
    assert "webhook-signature" not in got


def test_a_signature_of_each_key_covers_id_time_and_body(server: Server) -> None:
    keys = [b"a" * 32, b"b" * 32]
    message = stored(b"\xff\x00")
    assert server.webhook(secrets=lambda: keys).send([message], 60) == [TAKEN]
    got = server.requests[0][1]
    signed = f"{message.message.id}.{TIME}.".encode() + b"\xff\x00"
    expected = [
        "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        for key in keys
    ]
    assert got["webhook-signature"].split(" ") == expected


def test_signatures_are_those_of_the_standard_webhooks_example() -> None:
    key = parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    headers = signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, [key])
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_%%%", "whsec_c2hvcnQ="])
def test_a_secret_that_is_none_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_secret(text)
    assert caught.value.field == "secret"
    assert "c2hvcnQ" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unavailable("GetSecretValue", "500"), "the keys to sign with cannot be read"),
        (NotConfigured("keys of a/b"), "the setting keys of a/b is missing"),
    ],
)
def test_nothing_goes_out_unsigned_when_the_keys_cannot_be_read_or_are_not_there(
    server: Server, error: Exception, reason: str
) -> None:
    def secrets() -> Sequence[bytes]:
        raise error

    [outcome] = server.webhook(secrets=secrets).send([stored()], 60)
    assert outcome == Outcome("unreachable", reason)
    assert server.requests == []


DATE = format_datetime(dt.datetime.fromtimestamp(TIME + 90, dt.UTC), usegmt=True)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (status("204 No Content"), TAKEN),
        (status("202 Accepted", body=b"x" * 5000), TAKEN),
        (status("410 Gone"), Outcome("gone", "HTTP 410, the receiver wants no more:")),
        (status("429 Slow", "retry-after: 7"), Outcome("throttled", "HTTP 429", 7.0)),
        (status("429 Slow"), Outcome("throttled", "HTTP 429")),
        (status("429 Slow", "retry-after: 99999999"), Outcome("throttled", "HTTP 429", 86400.0)),
        (status("429 Slow", "retry-after: soon"), Outcome("throttled", "HTTP 429")),
        (status("503 No", f"retry-after: {DATE}"), Outcome("throttled", "HTTP 503", 90.0)),
        (status("503 No"), Outcome("refused", "HTTP 503", fault="destination")),
        (
            status("500 No", body=b"a\x1b[31m\r\nb\x00"),
            Outcome("refused", "HTTP 500: a [31m b", fault="destination"),
        ),
        (status("404 No"), Outcome("refused", "HTTP 404", fault="destination")),
        (status("422 No"), Outcome("refused", "HTTP 422")),
        (status("400 No", body=b"x" * 5000), Outcome("refused", "HTTP 400: " + "x" * 190)),
        (
            status("302 Found", "location: http://169.254.169.254/"),
            Outcome("refused", "HTTP 302: redirects are not followed", fault="destination"),
        ),
        (
            b"garbage\r\n\r\n",
            Outcome("refused", "no answer: it is not HTTP/1.1", fault="destination"),
        ),
    ],
)
def test_the_status_is_the_verdict(server: Server, answer: bytes, outcome: Outcome) -> None:
    server.scripts = [answer]
    assert server.webhook().send([stored()], 60) == [outcome]
    assert len(server.requests) == 1


def test_interim_answers_are_not_the_answer(server: Server) -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    server.scripts = [interim + OK, interim + status("422 No")]
    outcomes = server.webhook().send([stored()] * 2, 60)
    assert outcomes == [TAKEN, Outcome("refused", "HTTP 422")]
    assert server.connections == 1


def test_connections_are_used_again_and_one_that_was_closed_is_opened_anew(server: Server) -> None:
    webhook = server.webhook()
    assert webhook.send([stored(), stored()], 60) == [TAKEN] * 2
    assert server.connections == 1

    server.scripts = [lambda connection: connection.sendall(OK)]
    assert webhook.send([stored()], 60) == [TAKEN]
    assert server.ended.acquire(timeout=60)
    assert webhook.send([stored()], 60) == [TAKEN]
    assert server.connections == 2
    assert len(server.requests) == 4


def closing(connection: socket.socket) -> None:
    """Close as the request comes, without an answer and without the end that TLS announces."""


def test_a_connection_that_closes_under_a_call_is_opened_anew_and_no_attempt(
    server: Server,
) -> None:
    server.scripts = [OK, closing]
    assert server.webhook().send([stored()] * 2, 60) == [TAKEN] * 2
    assert (server.connections, len(server.requests)) == (2, 3)
    server.scripts = [closing, lambda connection: connection.sendall(OK[:30])]
    outcomes = server.webhook().send([stored()] * 2, 60)  # new ones have no such excuse
    reason = "no answer: ConnectionResetError"
    assert outcomes == [Outcome("refused", reason, fault="destination")] * 2


def test_a_farewell_of_an_idle_connection_is_not_the_answer_to_the_next_call(
    server: Server,
) -> None:
    idle = threading.Event()

    def farewell(connection: socket.socket) -> None:
        connection.sendall(OK)
        idle.wait(60)
        connection.sendall(status("408 Request Timeout"))

    server.scripts = [farewell]
    webhook = server.webhook()
    assert webhook.send([stored()], 60) == [TAKEN]
    idle.set()
    assert server.ended.acquire(timeout=60)
    assert webhook.send([stored()], 60) == [TAKEN]
    assert (server.connections, len(server.requests)) == (2, 2)


def test_what_nobody_asked_for_is_not_the_answer_to_the_next_call(server: Server) -> None:
    server.scripts = [OK + OK, status("422 No")]
    outcomes = server.webhook().send([stored()] * 2, 60)
    assert [outcome.verdict for outcome in outcomes] == ["taken", "refused"]


def test_a_connection_with_unread_answer_is_not_used_again(server: Server) -> None:
    server.scripts = [status("200 OK", body=b"x" * 100_000)]
    assert server.webhook().send([stored(), stored()], 60) == [TAKEN] * 2
    assert server.connections == 2


def silent(connection: socket.socket) -> None:
    connection.recv(1)  # until the caller has hung up


def dripping(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    hung_up = threading.Event()
    while True:  # until the caller has hung up
        connection.sendall(b"x: y\r\n")
        hung_up.wait(0.1)


def resetting(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("slow", [silent, dripping])
def test_an_answer_that_does_not_come_in_time_is_refused_in_time(
    server: Server, slow: Callable[[socket.socket], None]
) -> None:
    server.scripts = [slow]
    outcome = server.webhook().send([stored()], 2)
    assert outcome == [Outcome("refused", "no answer in 2 s", fault="destination")]


@pytest.mark.parametrize("ended", [b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nok"])
def test_the_limit_holds_after_an_answer_that_ended_with_its_connection(
    server: Server, ended: bytes
) -> None:
    drops: list[int] = []

    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.0 500 No\r\n\r\n")
        hung_up = threading.Event()
        while len(drops) < 300:  # or until the caller has hung up: 1,024 would be read
            connection.sendall(b"x")
            drops.append(1)
            hung_up.wait(0.05)

    server.scripts = [lambda connection: connection.sendall(ended), endless]
    webhook = server.webhook()
    assert webhook.send([stored()], 60) == [TAKEN]
    [outcome] = webhook.send([stored()], 2)
    assert outcome.verdict == "refused"
    assert [server.ended.acquire(timeout=60) for _ in range(2)] == [True, True]
    assert len(drops) < 300


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_receiver_that_reads_slowly_is_left_in_time(scheme: str) -> None:
    hung_up = threading.Event()
    read: list[int] = []

    def sip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with contextlib.suppress(OSError):
            if scheme == "https":
                connection = contexts()[0].wrap_socket(connection, server_side=True)
            with connection:
                while len(read) < 300 and connection.recv(16_384):  # of some 3,000
                    read.append(1)
                    hung_up.wait(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = threading.Thread(target=sip, args=(listener,), daemon=True)
        receiver.start()
        url = Url.parse(f"{scheme}://localhost:{listener.getsockname()[1]}/")
        found = lambda _h, _p: ["127.0.0.1"]  # noqa: E731 - one line says it
        caller = Caller(url, allow_private=True, lookup=found, tls=contexts()[1])
        outcome = caller.post({}, bytes(50_000_000), 2)
        hung_up.set()
    receiver.join(60)
    assert outcome == Outcome("refused", "no answer in 2 s", fault="destination")
    assert len(read) < 300


def test_each_address_has_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[tuple[str, float]] = []

    def swallow(address: tuple[str, int], timeout: float, **_: object) -> socket.socket:
        shares.append((address[0], timeout))
        raise TimeoutError

    monkeypatch.setattr("urllib3.util.connection.create_connection", swallow)
    found = ["8.8.8.1", "8.8.8.2", "8.8.8.3", "8.8.8.4"]
    url = Url.parse("https://four.example/")
    caller = Caller(url, lookup=lambda _h, _p: found, monotonic=lambda: 7.0)
    outcome = caller.post({}, b"", 6)
    assert shares == [("8.8.8.1", 2.0), ("8.8.8.2", 3.0), ("8.8.8.3", 6.0)]
    assert outcome == Outcome("unreachable", "cannot connect: TimeoutError")


def test_a_status_that_came_counts_though_its_body_does_not_end(server: Server) -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        connection.recv(1)  # until the caller has hung up

    server.scripts = [endless]
    assert server.webhook().send([stored()], 2) == [TAKEN]


def test_a_connection_that_is_reset_is_refused(server: Server) -> None:
    server.scripts = [resetting]
    [outcome] = server.webhook().send([stored()], 60)
    assert outcome.verdict == "refused"
    assert outcome.error.startswith("no answer: ")


def test_where_nobody_listens_is_unreachable(server: Server) -> None:
    server.close()
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    caller = Caller(Url.parse(f"http://127.0.0.1:{port}/"), allow_private=True)
    [outcome] = Webhook(caller, clock=FixedClock()).send([stored()], 60)
    assert outcome == Outcome("unreachable", "cannot connect: ConnectionRefusedError")


def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    def lookup(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(-2, "Name or service not known")

    caller = Caller(Url.parse("https://nowhere.example/"), lookup=lookup)
    [outcome] = Webhook(caller, clock=FixedClock()).send([stored()], 60)
    assert outcome == Outcome("unreachable", "the host's name cannot be resolved")


def test_a_resolver_that_hangs_is_left_behind_in_time() -> None:
    answers = threading.Event()

    def hanging(host: str, port: int) -> Sequence[str]:
        answers.wait(60)
        return []

    with pytest.raises(TimeoutError):
        within(0.1, hanging, "x", 1)
    answers.set()


PRIVATE = [
    "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
    "0.0.0.0", "0.1.2.3", "100.64.0.1", "224.0.0.1", "239.1.1.1", "255.255.255.255", "240.0.0.1",  # noqa: S104 - judged, not bound
    "192.0.0.8", "198.18.0.1", "203.0.113.5", "::", "::1", "::8.8.8.8", "::ffff:8.8.8.8",
    "::ffff:127.0.0.1", "64:ff9b::8.8.8.8", "64:ff9b:1::1", "2002:808:808::1", "2001:0:1::1",
    "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "3fff::1",
    "not an address", "",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_no_call_is_made_to_an_address_that_is_not_public(server: Server, address: str) -> None:
    assert not is_public(address)
    url = Url.parse(f"http://rebound.example:{server.port}/")
    caller = Caller(url, lookup=lambda _h, _p: [address])
    [outcome] = Webhook(caller, clock=FixedClock()).send([stored()], 60)
    assert outcome == Outcome("refused", "the host has no public address", fault="destination")
    assert server.connections == 0


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "2a00:1450::1"])
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(address)
    assert ipaddress.ip_address(address)


def test_a_name_that_turns_private_takes_no_idle_connection_along(server: Server) -> None:
    found = ["127.0.0.1"]
    webhook = server.webhook(found=found)
    assert webhook.send([stored()], 60) == [TAKEN]
    found[:] = ["127.0.0.2"]
    [outcome] = webhook.send([stored()], 60)
    assert outcome.verdict == "unreachable"
    assert len(server.requests) == 1


def test_the_next_address_is_tried_when_one_does_not_answer(server: Server) -> None:
    found = ["127.0.0.2", "127.0.0.1"]
    assert server.webhook(found=found).send([stored()], 60) == [TAKEN]


@pytest.mark.parametrize("host", ["localhost", "localhost.", "LOCALHOST"])
def test_tls_verifies_the_name_though_the_connection_goes_to_an_address(
    server: Server, host: str
) -> None:
    assert server.webhook(host).send([stored(), stored()], 60) == [TAKEN] * 2
    assert server.connections == 1
    assert [got["host"] for _, got, _ in server.requests] == [f"localhost:{server.port}"] * 2


def test_a_certificate_for_another_name_or_of_nobody_is_unreachable(server: Server) -> None:
    [other] = server.webhook("other.example").send([stored()], 60)
    url = Url.parse(f"https://localhost:{server.port}/")
    caller = Caller(url, allow_private=True, lookup=lambda _h, _p: ["127.0.0.1"])
    [unknown] = Webhook(caller, clock=FixedClock()).send([stored()], 60)
    assert [other.verdict, unknown.verdict] == ["unreachable"] * 2
    assert "certificate" in other.error
    assert "certificate" in unknown.error
    assert server.requests == []


def test_a_body_over_the_limit_is_refused_or_goes_as_its_address(server: Server) -> None:
    webhook = server.webhook(max_bytes=1000)
    big = stored(b"x" * 2000)
    away = stored(b"x" * 2000, offloaded=Offloaded("b", "k"))
    outcomes = webhook.send([big, away], 60)
    assert [o.verdict for o in outcomes] == ["refused", "taken"]
    assert "1000 bytes" in outcomes[0].error
    _, headers, body = server.requests[0]
    assert (headers["ce-dataref"], body) == ("s3://b/k", b"")
