"""Webhooks against a real server on loopback: verdicts, time limits, addresses, signatures, TLS."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import ipaddress
import socket
import ssl
import struct
import threading
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fairbox.cloudevents import parse_binary
from fairbox.destinations.addresses import is_public, within
from fairbox.destinations.outbound import Caller, Url
from fairbox.destinations.signatures import parse_secret, signed_headers
from fairbox.destinations.webhook import Webhook
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.errors import InvalidInput, Unavailable
from fairbox.model.stored_messages import Offloaded

from tests.support.destination_examples import TIME, FixedClock, stored
from tests.support.webhook_server import OK, Server, status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_the_body_arrives_byte_for_byte_with_the_event_in_headers(server: Server) -> None:
    body = bytes(range(256))
    headers = {"ce-type": "paid", "X-Reason": "é", "Host": "evil", "webhook-id": "forged",
               "traceparent": "00-1-2-01", "Content-Length": "3"}  # fmt: skip
    message = stored(body, content_type="image/png", headers=headers, partition_key="k 1")
    assert server.webhook().send([message], 60) == [TAKEN]
    first, got, received = server.requests[0]
    assert first == "POST /hook?token=t HTTP/1.1"
    assert received == body
    event = parse_binary(got, received)
    assert (event.id, event.type, event.partitionkey) == (message.message.id, "paid", "k 1")
    assert event.datacontenttype == "image/png"
    assert got["host"] == f"localhost:{server.port}"
    assert got["x-reason"] == "%C3%A9"
    assert got["traceparent"] == "00-1-2-01"
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


def test_nothing_goes_out_unsigned_when_the_keys_cannot_be_read(server: Server) -> None:
    def secrets() -> Sequence[bytes]:
        raise Unavailable("GetSecretValue", "500")

    [outcome] = server.webhook(secrets=secrets).send([stored()], 60)
    assert outcome.verdict == "unreachable"
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
        (b"garbage\r\n\r\n", Outcome("refused", "no answer: BadStatusLine", fault="destination")),
    ],
)
def test_the_status_is_the_verdict(server: Server, answer: bytes, outcome: Outcome) -> None:
    server.scripts = [answer]
    assert server.webhook().send([stored()], 60) == [outcome]
    assert len(server.requests) == 1


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
    outcome = server.webhook().send([stored()], 0.5)
    assert outcome == [Outcome("refused", "no answer in 0.5 s", fault="destination")]


def test_a_status_that_came_counts_though_its_body_does_not_end(server: Server) -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        connection.recv(1)  # until the caller has hung up

    server.scripts = [endless]
    assert server.webhook().send([stored()], 0.5) == [TAKEN]


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
    assert outcome == Outcome("unreachable", "cannot connect: NewConnectionError")


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
    answers = [["127.0.0.1"], ["127.0.0.2"]]
    url = Url.parse(f"http://rebound.example:{server.port}/")
    caller = Caller(url, allow_private=True, lookup=lambda _h, _p: answers.pop(0))
    webhook = Webhook(caller, clock=FixedClock())
    assert webhook.send([stored()], 60) == [TAKEN]
    [outcome] = webhook.send([stored()], 60)
    assert outcome.verdict == "unreachable"
    assert len(server.requests) == 1


def test_the_next_address_is_tried_when_one_does_not_answer(server: Server) -> None:
    url = Url.parse(f"http://two.example:{server.port}/")
    found = ["127.0.0.2", "127.0.0.1"]
    caller = Caller(url, allow_private=True, lookup=lambda _h, _p: found)
    assert Webhook(caller, clock=FixedClock()).send([stored()], 60) == [TAKEN]


def contexts(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server's context with a fresh certificate, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pem)
    return serving, ssl.create_default_context(cafile=str(pem))


@pytest.mark.parametrize(("name", "taken"), [("hook.example", True), ("other.example", False)])
def test_tls_verifies_the_name_though_the_connection_goes_to_an_address(
    server: Server, tmp_path: Path, name: str, *, taken: bool
) -> None:
    server.tls, trusting = contexts(tmp_path, "hook.example")
    url = Url.parse(f"https://{name}:{server.port}/")
    lookup = lambda _h, _p: ["127.0.0.1"]  # noqa: E731 - one line says it
    caller = Caller(url, allow_private=True, lookup=lookup, tls=trusting)
    outcomes = Webhook(caller, clock=FixedClock()).send([stored(), stored()], 60)
    if taken:
        assert outcomes == [TAKEN] * 2
        assert server.connections == 1
    else:
        assert {o.verdict for o in outcomes} == {"unreachable"}
        assert server.requests == []


def test_a_certificate_that_nobody_vouches_for_is_unreachable(
    server: Server, tmp_path: Path
) -> None:
    server.tls, _ = contexts(tmp_path, "hook.example")
    url = Url.parse(f"https://hook.example:{server.port}/")
    caller = Caller(url, allow_private=True, lookup=lambda _h, _p: ["127.0.0.1"])
    [outcome] = Webhook(caller, clock=FixedClock()).send([stored()], 60)
    assert outcome.verdict == "unreachable"
    assert "certificate" in outcome.error
    assert server.requests == []


def test_a_slow_answer_over_tls_is_cut_in_time_too(server: Server, tmp_path: Path) -> None:
    server.tls, trusting = contexts(tmp_path, "hook.example")
    server.scripts = [dripping]
    url = Url.parse(f"https://hook.example:{server.port}/")
    caller = Caller(url, allow_private=True, lookup=lambda _h, _p: ["127.0.0.1"], tls=trusting)
    outcome = Webhook(caller, clock=FixedClock()).send([stored()], 0.5)
    assert outcome == [Outcome("refused", "no answer in 0.5 s", fault="destination")]


def test_a_body_over_the_limit_is_refused_or_goes_as_its_address(server: Server) -> None:
    webhook = server.webhook(max_bytes=1000)
    big = stored(b"x" * 2000)
    away = stored(b"x" * 2000, offloaded=Offloaded("b", "k"))
    outcomes = webhook.send([big, away], 60)
    assert [o.verdict for o in outcomes] == ["refused", "taken"]
    assert "1000 bytes" in outcomes[0].error
    _, headers, body = server.requests[0]
    assert (headers["ce-dataref"], body) == ("s3://b/k", b"")
