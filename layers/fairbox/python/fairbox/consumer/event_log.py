"""Counts and tells what happens to a consumer's messages, with the same fields in each line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.consumer.counts import Kind, Tally
    from fairbox.consumer.in_flight import Held
    from fairbox.consumer.outcomes import Outcome
    from fairbox.consumer.ports import Log

_COUNTED: Final[Mapping[str, Kind]] = {
    "ack": "acked",
    "fail": "failed",
    "retry": "retried",
    "dead": "dead",
    "release": "released",
    "abandon": "abandoned",
}
_SILENT: Final = ("ack", "release")


class Journal:
    """The counts and the log of one consumer.

    Args:
        tally: the counts.
        log: takes a line for each message that is not simply acked, and for each call that fails.
        fields: of every line.
    """

    def __init__(self, tally: Tally, log: Log, fields: Mapping[str, Any]) -> None:
        self._tally = tally
        self._log = log
        self._fields = fields

    def tell(self, sentence: str, more: Mapping[str, Any] | None = None) -> None:
        """Write a line with the counts."""
        counts = self._tally.counts.as_fields()
        self._log.info(sentence, extra={**self._fields, **counts, **(more or {})})

    def received(self, count: int) -> None:
        """Count what came."""
        self._tally.add("received", count)

    def settled(self, held: Held, outcome: Outcome) -> None:
        """Count what became of a message."""
        self._tally.add(_COUNTED[outcome.kind])
        if outcome.kind not in _SILENT:
            died = outcome.kind == "dead"
            sentence = "A message is dead." if died else "A message was given back."
            told = {"reason": outcome.reason, "delay": outcome.delay}
            self._log.warning(sentence, extra=self._about(held) | told)

    def lost(self, held: Held) -> None:
        """Count a receipt that was stale."""
        self._tally.add("lost")
        self._log.warning("A receipt was lost.", extra=self._about(held))

    def hung(self, held: Held, seconds: float) -> None:
        """Count a handler that does not come back."""
        self._tally.add("hung")
        self._log.error("A handler hangs.", extra=self._about(held) | {"seconds": seconds})

    def failed(self, operation: str, error: Exception) -> None:
        """Count a call that will be made again."""
        self._tally.add("errors")
        told = {"operation": operation, "error": str(error)}
        self._log.warning("A call of the queue failed.", extra={**self._fields, **told})

    def left(self, held: Sequence[Held], error: Exception) -> None:
        """Count a call that will not be made again: its messages come back by themselves."""
        self._tally.add("errors")
        for one in held:
            told = {"error": f"{type(error).__name__}: {error}"}
            self._log.error("A message was left to its visibility.", extra=self._about(one) | told)

    def _about(self, held: Held) -> dict[str, Any]:
        received = held.received
        return {
            **self._fields,
            "id": received.message.id,
            "receive_count": received.receive_count,
        }
