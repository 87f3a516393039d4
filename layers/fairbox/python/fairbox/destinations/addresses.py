"""Addresses of webhooks: only public ones may be called, judged after the name was resolved."""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Beside what `ipaddress` calls global: its answer differs between patch releases of Python, and
# addresses that carry an IPv4 address inside lead wherever that one does.
_REFUSED: Final = tuple(
    ipaddress.ip_network(text)
    for text in [
        "0.0.0.0/8",
        "100.64.0.0/10",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "240.0.0.0/4",
        "::/96",
        "::ffff:0:0/96",
        "::ffff:0:0:0/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    ]
)


def is_public(address: str) -> bool:
    """Whether the address is one of the public internet, and not one that hides another."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if any(ip.version == network.version and ip in network for network in _REFUSED):
        return False
    # Python calls some multicast addresses global
    return ip.is_global and not ip.is_multicast


def resolve(host: str, port: int) -> list[str]:
    """Return the host's addresses in the order in which to try them.

    Raises:
        OSError: there are none.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # a name may have an address twice, and only a few are tried
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def within(
    timeout: float, lookup: Callable[[str, int], Sequence[str]], host: str, port: int
) -> Sequence[str]:
    """Return the addresses that `lookup` finds within `timeout` seconds, which it does not bound.

    Raises:
        OSError: it found nothing in time.
    """
    answers: queue.SimpleQueue[Sequence[str] | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put(lookup(host, port))
        except (OSError, UnicodeError) as error:
            answers.put(error)

    # a daemon: a lookup that hangs is left behind, and keeps no process from ending
    threading.Thread(target=run, name="fairbox-resolve", daemon=True).start()
    try:
        answer = answers.get(timeout=max(timeout, 0.001))
    except queue.Empty:
        raise TimeoutError("the name was not resolved in time") from None
    if isinstance(answer, Exception):
        raise OSError(str(answer)) from answer
    return answer
