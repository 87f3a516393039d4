"""Webhooks that would lead inside: odd addresses, redirects, proxies, names that change."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from fairbox.destinations import DestinationFactory
from fairbox.destinations.addresses import is_public, resolve
from fairbox.destinations.outbound import MAX_ANSWER, Caller, Url
from fairbox.destinations.webhook import Webhook
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.errors import InvalidInput
from fairbox.model.topics import Subscription

from tests.support.destination_examples import FixedClock, stored

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

NOT_PUBLIC = Outcome("refused", "the host has no public address", fault="destination")


class Inside:
    """A server on loopback that nobody outside may be made to call.

    Attributes:
        calls: the requests that came, with the host that they named.
        status, location, body: its answer.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.status, self.location, self.body = 200, "", b"ok"
        inside = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                inside.calls.append((self.path, self.headers["host"]))
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(inside.status)
                if inside.location:
                    self.send_header("location", inside.location)
                self.send_header("content-length", str(len(inside.body)))
                self.end_headers()
                self.wfile.write(inside.body)

            do_GET = do_CONNECT = do_POST  # noqa: N815 - the names that the server looks for

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def webhook(self, *answers: Sequence[str], allow_private: bool = False) -> Webhook:
        """Return a webhook whose host's name has these answers, one after another."""
        left = list(answers)
        lookup = lambda _h, _p: left.pop(0) if len(left) > 1 else left[0]  # noqa: E731
        url = Url.parse(f"http://rebound.example:{self.port}/hook")
        return Webhook(Caller(url, allow_private=allow_private, lookup=lookup), clock=FixedClock())

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def inside() -> Iterator[Inside]:
    made = Inside()
    yield made
    made.close()


def factory() -> DestinationFactory:
    return DestinationFactory(
        clients=lambda _service, **_: object(),
        clock=FixedClock(),
        add_to_topic=lambda messages: [TAKEN for _ in messages],
    )


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",  # 127.0.0.1 as one number
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "127.1",
        "10.1",
        "169.254.43518",  # 169.254.169.254
        "0xa9fea9fe",
        "localhost",
    ],
)
def test_other_spellings_of_inner_addresses_are_judged_by_what_they_resolve_to(
    inside: Inside, host: str
) -> None:
    url = Url.parse(f"http://{host}:{inside.port}/")
    assert all(not is_public(address) for address in resolve(url.host, url.port))
    [outcome] = Webhook(Caller(url), clock=FixedClock()).send([stored()], 5)
    assert outcome == NOT_PUBLIC
    assert inside.calls == []


@pytest.mark.parametrize(
    "address",
    [
        "https://[::1]/",
        "https://[::]/",
        "https://[::ffff:169.254.169.254]/",
        "https://[::ffff:a9fe:a9fe]/",
        "https://[64:ff9b::a9fe:a9fe]/",
        "https://[64:ff9b:1::a00:1]/",
        "https://[2002:a9fe:a9fe::1]/",
        "https://[2001:0:a9fe:a9fe::1]/",
        "https://[fd00:ec2::254]/",
        "https://[fe80::1]/",
        "https://[fe80::1%25eth0]/",
        "https://[fe80::1%eth0]/",
        "https://[ff02::1]/",
        "https://100.64.0.1/",
        "https://224.0.0.1/",
        "https://0.0.0.0/",
        "https://user@example.com/",
        "https://user:pass@example.com/",
        "https://example.com@169.254.169.254/",
        "https://example.com:0x50/",
        "https://example.com/%0d%0ahost:x\r\nhost: inside",
        "http://example.com/",
        "HTTP://example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://10.0.0.1/",
    ],
)
def test_an_address_that_leads_inside_or_is_ambiguous_is_not_opened(address: str) -> None:
    with pytest.raises(InvalidInput):
        factory().open(Subscription("orders", "s", address))


def test_a_name_is_resolved_once_and_called_where_it_was_judged_though_it_changes(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    connected: list[tuple[str, int]] = []

    def lookup(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["8.8.8.8"] if len(asked) == 1 else ["127.0.0.1"]

    def connect(address: tuple[str, int], *_: object, **__: object) -> socket.socket:
        connected.append(address)
        raise OSError("no way there from a test")

    monkeypatch.setattr("urllib3.util.connection.create_connection", connect)
    url = Url.parse(f"http://rebound.example:{inside.port}/")
    webhook = Webhook(Caller(url, lookup=lookup), clock=FixedClock())
    [first] = webhook.send([stored()], 5)
    assert (first.verdict, asked) == ("unreachable", ["rebound.example"])
    assert connected == [("8.8.8.8", inside.port)]
    [second] = webhook.send([stored()], 5)  # now it is inside
    assert second == NOT_PUBLIC
    assert connected == [("8.8.8.8", inside.port)]
    assert inside.calls == []


def test_of_public_and_inner_addresses_of_a_name_only_the_public_ones_are_tried(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[str] = []

    def connect(address: tuple[str, int], *_: object, **__: object) -> socket.socket:
        connected.append(address[0])
        raise OSError("no way there from a test")

    monkeypatch.setattr("urllib3.util.connection.create_connection", connect)
    answers = ["127.0.0.1", "8.8.8.8", "::1", "169.254.169.254", "2606:4700::1111"]
    [outcome] = inside.webhook(answers).send([stored()], 5)
    assert outcome.verdict == "unreachable"
    assert connected == ["8.8.8.8", "2606:4700::1111"]
    assert inside.calls == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/again", "http://127.0.0.1:{port}/metadata", "//[::1]/"])
def test_no_redirect_is_followed_anywhere(inside: Inside, status: int, location: str) -> None:
    inside.status, inside.location = status, location.format(port=inside.port)
    [outcome] = inside.webhook(["127.0.0.1"], allow_private=True).send([stored()], 5)
    refused = Outcome("refused", f"HTTP {status}: redirects are not followed", fault="destination")
    assert outcome == refused
    assert [path for path, _ in inside.calls] == ["/hook"]


def test_proxies_of_the_environment_are_not_used(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Inside()
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("no_proxy", "")
    assert inside.webhook(["127.0.0.1"], allow_private=True).send([stored()], 5) == [TAKEN]
    assert [host for _, host in inside.calls] == [f"rebound.example:{inside.port}"]
    assert proxy.calls == []
    proxy.close()


def test_an_endless_or_packed_answer_is_read_to_a_kilobyte_and_not_unpacked(
    inside: Inside,
) -> None:
    inside.status, inside.body = 500, b"z" * 5_000_000
    url = Url.parse(f"http://rebound.example:{inside.port}/")
    caller = Caller(url, allow_private=True, lookup=lambda _h, _p: ["127.0.0.1"])
    answer = caller.post({"accept-encoding": "identity"}, b"{}", 10)
    assert not isinstance(answer, Outcome)
    assert len(answer.body) == MAX_ANSWER
    [outcome] = Webhook(caller, clock=FixedClock()).send([stored()], 10)
    assert len(outcome.error) == 200
