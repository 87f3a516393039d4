"""The state of a shell: current topic and message, and receipts not yet settled."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairbox.errors import StaleReceipt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairbox import Queue
    from fairbox.cli.library_clients import Clients
    from fairbox.model.messages import MessageRef
    from fairbox.model.receipts import Received


@dataclass(slots=True)
class ShellState:
    """The current topic and message, and the receipts not yet settled.

    Attributes:
        topic: the current topic; empty: none.
        ref: the current message, received or shown; empty: none.
        receipts: the refs of messages that are held, by receipt, in the order of receiving.
    """

    topic: str = ""
    ref: str = ""
    receipts: dict[str, str] = field(default_factory=dict)

    @property
    def receipt(self) -> str | None:
        """The current message's receipt; None: it is not held."""
        return next((r for r, ref in self.receipts.items() if ref == self.ref), None)

    def take(self, received: Iterable[Received]) -> None:
        """Note what was received; the first of it is the current message."""
        from fairbox.model.receipts import Receipt  # noqa: PLC0415 - `fairbox --help` does without

        refs = {one.receipt: str(Receipt.parse(one.receipt).ref) for one in received}
        # who holds a message twice holds it by the newer receipt
        self.receipts = {r: ref for r, ref in self.receipts.items() if ref not in refs.values()}
        self.receipts |= refs
        self.ref = next(iter(refs.values()), self.ref)

    def drop(self, settled: Iterable[str]) -> None:
        """Forget settled or stale receipts, each named by itself or its ref; move on from them."""
        names, before = set(settled), self.receipts
        self.receipts = {r: ref for r, ref in before.items() if not names & {r, ref}}
        # the current message was settled: the oldest that is still held is current then
        if self.ref in before.values() and self.ref not in self.receipts.values():
            self.ref = next(iter(self.receipts.values()), self.ref)


class HoldingQueue:
    """A queue that notes in `held` what was received through it and what was settled."""

    def __init__(self, queue: Queue, state: ShellState) -> None:
        self._queue = queue
        self._state = state

    def __getattr__(self, name: str) -> Any:
        """Return what the queue has of this name."""
        return getattr(self._queue, name)

    def receive(self, *arguments: Any, **options: Any) -> list[Received]:
        """Receive, and note it."""
        received = self._queue.receive(*arguments, **options)
        self._state.take(received)
        return received

    def ack(self, receipts: str | Iterable[str]) -> None:
        """Acknowledge, and note it."""
        texts = [receipts] if isinstance(receipts, str) else list(receipts)
        with self._settling(texts):
            self._queue.ack(texts)

    def release(self, receipts: MessageRef | list[str]) -> None:
        """Give back, and note it."""
        with self._settling(receipts):
            self._queue.release(receipts)

    def reset(self, ref: MessageRef) -> None:
        """Give back with no receive counted, and note it."""
        with self._settling(ref):
            self._queue.reset(ref)

    def delete(self, ref: MessageRef, *, reason: str = "") -> None:
        """Delete, and note it."""
        with self._settling(ref):
            self._queue.delete(ref, reason=reason)

    def nack(self, receipt: str, delay: float | None = 0, reason: str = "") -> None:
        """Give back with a reason, and note it."""
        with self._settling([receipt]):
            self._queue.nack(receipt, delay, reason)

    def bury(self, receipt: str | MessageRef, reason: str = "") -> None:
        """Give up, and note it."""
        with self._settling([receipt] if isinstance(receipt, str) else receipt):
            self._queue.bury(receipt, reason)

    @contextmanager
    def _settling(self, settled: list[str] | MessageRef) -> Iterator[None]:
        names = settled if isinstance(settled, list) else [str(settled)]
        try:
            yield
        except StaleReceipt:
            self._state.drop(names)  # those that are not stale were settled
            raise
        self._state.drop(names)


class HoldingClients:
    """The clients, with a queue that notes what it holds."""

    def __init__(self, clients: Clients, state: ShellState) -> None:
        self._clients = clients
        self._state = state

    def __getattr__(self, name: str) -> Any:
        """Return what the clients have of this name."""
        return getattr(self._clients, name)

    @property
    def queue(self) -> HoldingQueue:
        """The queue."""
        return HoldingQueue(self._clients.queue, self._state)
