"""Whatever a webhook's receiver answers, over real sockets: a documented outcome, in bounds."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any, Final, get_args

import pytest
from fairbox.destinations.outbound import Caller, Url
from fairbox.destinations.webhook import Webhook
from fairbox.dispatch.ports import Outcome, Verdict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.destination_examples import FixedClock, stored
from tests.support.webhook_server import Server, contexts, status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS: Final = 20.0
DAY: Final = 86_400
GUARD_SECONDS: Final = 60.0
MEMORY: Final = 4_000_000
DRAWS = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

waits = st.one_of(
    st.integers(-(10**12), 10**12).map(str),
    st.floats().map(str),
    st.sampled_from(
        [
            "",
            "nan",
            "inf",
            "-0",
            "1e9",
            "9" * 5000,
            "٣",
            "Wed, 21 Oct 2015 07:28:00 GMT",
            "Fri, 31 Dec 9999 23:59:59 GMT",
            "Mon, 00 Foo 0000 99:99:99 +9999",
            "Thu, 01 Jan 1970 00:00:00 -9999999999",
            "1, 2, 3",
        ]
    ),
    st.text(st.characters(codec="latin-1", exclude_characters="\r\n"), max_size=30),
)
header_values = st.text(st.characters(codec="latin-1", exclude_characters="\r\n"), max_size=60)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(tls=contexts()[0])
    yield made
    made.close()


def answered(server: Server, script: bytes | Callable[[socket.socket], None]) -> Outcome:
    """Send one message to a server that answers so; a call that hangs fails."""
    hook = server.webhook()
    server.scripts[:] = [script]
    outcomes: list[Outcome] = []
    call = threading.Thread(
        target=lambda: outcomes.extend(hook.send([stored(body=b"{}")], SECONDS)), daemon=True
    )
    call.start()
    call.join(GUARD_SECONDS)
    assert outcomes, "the call raised, or hangs"
    return outcomes[0]


def then_close(data: bytes) -> Callable[[socket.socket], None]:
    """Return a script that answers and closes the connection."""

    def script(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)

    return script


def check(outcome: Outcome) -> None:
    """Hold an outcome to what every outcome is."""
    assert outcome.verdict in get_args(Verdict)
    assert len(outcome.error) <= 200
    assert outcome.error.isprintable()
    wait: Any = outcome.retry_after
    assert wait is None or 0 <= wait <= DAY


@DRAWS
@given(st.integers(200, 999), waits, st.binary(max_size=1500))
def test_every_status_has_its_verdict_whatever_it_asks_to_wait(
    server: Server, code: int, wait: str, body: bytes
) -> None:
    answer = status(f"{code} X", body=b"").replace(b"content-length: 0", b"connection: close")
    head, _, _ = answer.partition(b"\r\n\r\n")
    outcome = answered(
        server,
        then_close(head + f"\r\nretry-after: {wait}\r\n\r\n".encode("latin-1", "replace") + body),
    )
    check(outcome)
    expected = {"taken"} if 200 <= code < 300 else {"refused"}
    expected = {429: {"throttled"}, 410: {"gone"}, 503: {"throttled", "refused"}}.get(
        code, expected
    )
    assert outcome.verdict in expected, outcome


@DRAWS
@given(st.data())
def test_an_answer_that_is_cut_at_any_byte_takes_nothing_unless_its_status_came(
    server: Server, data: st.DataObject
) -> None:
    names = st.from_regex(r"\A[a-z-]{1,20}\Z")
    headers = data.draw(st.lists(st.tuples(names, header_values), max_size=4))
    body = data.draw(st.binary(max_size=2000))
    told = data.draw(st.sampled_from([len(body), len(body) + 9, 10**30, -1]))
    lines = ["HTTP/1.1 200 OK", f"content-length: {told}", *(f"{n}: {v}" for n, v in headers)]
    answer = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
    cut = data.draw(st.integers(0, len(answer)))
    outcome = answered(server, then_close(answer[:cut]))
    check(outcome)
    if cut < len("HTTP/1.1 2"):
        assert outcome.verdict != "taken"


@DRAWS
@given(
    st.binary(max_size=300)
    | st.builds(
        lambda start, code, rest: start + code + rest,
        st.sampled_from([b"HTTP/1.1 ", b"HTTP/9 ", b"HTTP/1.1", b"ICY ", b"\r\n"]),
        st.sampled_from(
            [b"0", b"99", b"099", b"1000", b"-200", b"2e2", b"2\xd9\xa0", b"", b"20 0"]
        ),
        st.binary(max_size=40),
    )
)
def test_what_is_no_answer_of_http_is_never_taken_for_one(server: Server, garbage: bytes) -> None:
    outcome = answered(server, then_close(garbage))
    check(outcome)
    assert outcome.verdict != "taken" or garbage.startswith(b"HTTP/")


@DRAWS
@given(
    st.lists(
        st.builds(
            lambda size, data: size + b"\r\n" + data + b"\r\n",
            st.sampled_from([b"3", b"0", b"FFFFFFFFFFFFFFFFF", b"-1", b"x", b"", b"3;a=b", b"3 "]),
            st.binary(max_size=8),
        ),
        max_size=5,
    ),
    st.booleans(),
)
def test_a_status_counts_though_the_chunks_behind_it_are_broken(
    server: Server, chunks: list[bytes], good: bool
) -> None:
    code = "204 OK" if good else "500 Oh"
    head = f"HTTP/1.1 {code}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    outcome = answered(server, then_close(head + b"".join(chunks)))
    check(outcome)
    assert outcome.verdict == ("taken" if good else "refused")


def _endless(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(b"HTTP/1.1 500 Oh\r\nconnection: close\r\n\r\n")
        for _ in range(4000):
            connection.sendall(b"x" * 65536)


def _endless_headers(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for number in range(400_000):
            connection.sendall(f"x-{number}: {'y' * 500}\r\n".encode())


def _endless_line(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
        for _ in range(4000):
            connection.sendall(b"y" * 65536)


def _endless_interim(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 50)


def _expanding(connection: socket.socket) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    head = f"HTTP/1.1 500 Oh\r\ncontent-encoding: gzip\r\ncontent-length: {len(bomb)}\r\n\r\n"
    with contextlib.suppress(OSError):
        connection.sendall(head.encode() + bomb)


@pytest.mark.extended  # its time is that of the caller's limit
@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        (_endless, "refused"),
        (_endless_headers, "refused"),
        (_endless_line, "refused"),
        (_endless_interim, "refused"),
        (_expanding, "refused"),
    ],
)
def test_an_answer_without_end_ends_in_time_and_takes_no_memory(
    server: Server, script: Callable[[socket.socket], None], verdict: str
) -> None:
    tracemalloc.start()
    try:
        outcome = answered(server, script)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    check(outcome)
    assert outcome.verdict == verdict
    assert peak < MEMORY + (60_000_000 if script is _expanding else 0)  # the bomb as it is made


def test_an_answer_that_is_no_tls_is_unreachable_over_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with contextlib.suppress(OSError), connection:
                connection.recv(9)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        url = Url.parse(f"https://localhost:{listener.getsockname()[1]}/hook")
        caller = Caller(url, allow_private=True, lookup=lambda _h, _p: ["127.0.0.1"])
        (outcome,) = Webhook(caller, clock=FixedClock()).send([stored()], SECONDS)
    check(outcome)
    assert outcome.verdict == "unreachable"
