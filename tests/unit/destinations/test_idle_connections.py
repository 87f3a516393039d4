"""Open connections: many calls at once use them again, and a process keeps a bounded number."""

from __future__ import annotations

import gc
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from fairbox.destinations.outbound import Answer, Caller, IdleConnections, Url

from tests.support.webhook_server import OK, Server

if TYPE_CHECKING:
    import socket

AT_ONCE = 40


def caller(server: Server, idle: IdleConnections | None = None) -> Caller:
    url = Url.parse(f"http://localhost:{server.port}/hook")
    return Caller(url, allow_private=True, lookup=lambda _h, _p: ["127.0.0.1"], idle=idle)


def call_all_at_once(made: Caller, server: Server) -> None:
    """Make forty calls, none of which is answered before all have come."""
    barrier = threading.Barrier(AT_ONCE)

    def together(connection: socket.socket) -> None:
        barrier.wait(60)
        connection.sendall(OK)

    server.scripts = [together] * AT_ONCE
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda _: made.post({}, b"", 60), range(AT_ONCE)))
    assert all(isinstance(answer, Answer) for answer in answers)


def test_as_many_calls_as_before_open_no_further_connection() -> None:
    server = Server(keep=True)
    made = caller(server)
    for _ in range(3):
        call_all_at_once(made, server)
    assert server.connections == AT_ONCE
    made.close()
    server.close()


def test_callers_share_a_limit_and_the_oldest_connection_is_closed() -> None:
    servers = [Server() for _ in range(4)]
    idle = IdleConnections(3)
    callers = [caller(server, idle) for server in servers]
    for made in [*callers, *callers[1:]]:
        assert isinstance(made.post({}, b"", 5), Answer)
    assert [server.connections for server in servers] == [1, 1, 1, 1]
    assert isinstance(callers[0].post({}, b"", 5), Answer)
    assert servers[0].connections == 2
    for made, server in zip(callers, servers, strict=True):
        made.close()
        server.close()


def test_connections_of_a_forgotten_cycle_are_closed() -> None:
    server = Server(keep=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        idle = IdleConnections()
        made = caller(server, idle)
        assert isinstance(made.post({}, b"", 5), Answer)
        cycle: list[object] = [made]
        for _ in range(20):  # so that a collection finds the caller after the connection
            cycle = [cycle]
        cycle = [idle, cycle]
        cycle.append(cycle)
        del idle, made
        gc.collect()
        del cycle
        gc.collect()
    server.close()
    assert [str(w.message) for w in seen if w.category is ResourceWarning] == []
