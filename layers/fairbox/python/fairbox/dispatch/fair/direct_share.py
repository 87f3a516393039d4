"""The share of direct messages: up to half of what is sent while topics wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairbox.dispatch.ports import Limits


class DirectShare:
    """What direct messages may still take, in half messages and half bytes.

    Each call gives half of its own limits; what a call does not use is kept for one call, so that a
    destination of one message a call alternates. A message that is larger than half a call may go
    and leaves a debt. So of any k calls in which topics wait direct messages take at most half, and
    once half a call and one message more.
    """

    def __init__(self) -> None:
        self._messages: int | None = None
        self._bytes = 0

    def begin(self, limits: Limits) -> None:
        """Give the half of a call that begins."""
        most = limits.messages + limits.messages % 2
        if self._messages is None:
            self._messages, self._bytes = most, limits.bytes
        else:
            self._messages = min(most, self._messages + limits.messages)
            self._bytes = min(limits.bytes, self._bytes + limits.bytes)

    @property
    def left(self) -> bool:
        """Whether one more may go before the topics."""
        return (self._messages or 0) >= 2 and self._bytes > 0

    def use(self, size: int) -> None:
        """Count a direct message that goes before waiting topics."""
        self._messages = (self._messages or 0) - 2
        self._bytes -= 2 * size
