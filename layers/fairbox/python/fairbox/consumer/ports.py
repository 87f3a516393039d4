"""The ports of a consumer: a queue, threads, metrics and a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fairbox.model.receipts import Received
    from fairbox.model.topic_states import TopicState
    from fairbox.model.topics import Partition


class Source(Protocol):
    """A queue, as consumers use it. A lost receipt raises `StaleReceipt` and changes nothing.

    Several threads call it. If it has `extend_many(receipts, seconds)`, a consumer extends up to a
    hundred messages in a call; `StaleReceipt` names the lost ones, and the others are extended.
    """

    def receive(
        self,
        topic: str,
        max_messages: int = 10,
        visibility_timeout: float = 30,
        wait: float = 0,
        *,
        consumer: str = "",
    ) -> Sequence[Received]:
        """Claim up to 100 messages for so many seconds, under a name that lists show."""
        ...

    def ack(self, receipts: Iterable[str]) -> None:
        """Delete the messages of valid receipts, even if others are stale."""
        ...

    def nack(self, receipt: str, delay: float | None = 0, reason: str = "") -> None:
        """Give a message back, due after so many seconds; None: after the topic's back-off."""
        ...

    def extend(self, receipt: str, seconds: float) -> None:
        """Hold a message for so many seconds from now."""
        ...

    def release(self, receipts: Iterable[str]) -> None:
        """Give messages back that no handler has begun, without counting an attempt."""
        ...

    def bury(self, receipt: str, reason: str) -> None:
        """Make a message a dead letter."""
        ...

    def topic(self, name: str) -> TopicState:
        """Return the state of a pulled topic."""
        ...


class Poll(Protocol):
    """A method `poll` of a queue, which may lack it: one step of a receive that waits."""

    def __call__(
        self,
        topic: str,
        max_messages: int = 10,
        visibility_timeout: float = 30,
        *,
        consumer: str = "",
    ) -> tuple[Sequence[Received], float]:
        """Claim messages; return them, and seconds until the next step."""
        ...


class Thread(Protocol):
    """A running thread."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, so many seconds at most."""
        ...


class Threads(Protocol):
    """Starts threads."""

    def __call__(self, work: Callable[[], None], name: str) -> Thread:
        """Return a running thread."""
        ...


class Figures(Protocol):
    """Takes metrics, as `fairbox.observability.metrics.Metrics` does."""

    def emit(
        self,
        figures: Mapping[str, float],
        *,
        topic: str | None = None,
        partition: Partition | None = None,
    ) -> None:
        """Write figures by name, of one topic or of all."""
        ...


class Log(Protocol):
    """A logger, as far as consumers use it."""

    def info(self, msg: str, *, extra: Mapping[str, Any]) -> None:
        """Write a line of level INFO."""

    def warning(self, msg: str, *, extra: Mapping[str, Any]) -> None:
        """Write a line of level WARNING."""

    def error(self, msg: str, *, extra: Mapping[str, Any]) -> None:
        """Write a line of level ERROR."""
