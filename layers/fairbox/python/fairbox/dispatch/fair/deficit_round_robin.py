"""Whose turn it is: deficit round-robin over bytes, without the rounds in which nobody could send.

In each round everybody who waits is credited with a quantum times their weight, and sends when the
credit, the *deficit*, covers their next message (Shreedhar and Varghese, 1996). A quantum of one
kilobyte lets small messages alternate one by one, but one of 256 KiB waits for 256 rounds. So
nobody is visited in vain: who cannot send yet is put down for the round in which they can, and
rounds that nobody is put down for are passed over. A turn costs O(log r), r the different rounds
that are waited for, whatever the number of those who wait; who does not wait costs nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

K = TypeVar("K", bound="Hashable")

QUANTUM: Final = 1024
"""Bytes that weight 1 is credited with in a round."""
_SCALE: Final = 1000  # weights are counted in thousandths, so that all sums are exact


@dataclass(slots=True)
class _Account:
    rate: int  # thousandths of a byte that a round credits
    round: int  # the round of its turn; credited up to there
    deficit: int = 0  # thousandths of a byte


class Turns(Generic[K]):
    """The order of those who wait.

    In one round come first those who were put back, then those who had a turn and have more, then
    newcomers: each goes to the end of its round, and who is put back to the beginning.
    """

    def __init__(self) -> None:
        self._round = 0
        self._rounds: list[int] = []
        self._lines: dict[int, deque[K]] = {}
        self._accounts: dict[K, _Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def __contains__(self, who: K) -> bool:
        return who in self._accounts

    def enter(self, who: K, size: int, weight: float = 1.0) -> None:
        """Let somebody wait, with nothing to their credit, for a turn of so many bytes."""
        account = self._accounts[who] = _Account(max(1, round(QUANTUM * weight * _SCALE)), 0)
        account.round = self._round
        self._put_down(who, account, size)

    def take(self) -> K | None:
        """Return whose turn it is, and take them out of the line; None: nobody waits.

        `serve` or `put_back` is to follow.
        """
        while self._rounds:
            number = self._rounds[0]
            line = self._lines[number]
            if line:
                self._round = max(self._round, number)
                return line.popleft()
            del self._lines[heappop(self._rounds)]
        return None

    def serve(self, who: K, sent: int, size: int | None) -> None:
        """Charge what was sent, and put them down for their next turn; None: nothing is left.

        Args:
            who: as `take` gave them.
            sent: bytes of this turn, in all.
            size: bytes of the next turn.
        """
        self.charge(who, sent)
        if size is None:
            del self._accounts[who]
        else:
            self._put_down(who, self._accounts[who], size)

    def charge(self, who: K, sent: int) -> None:
        """Charge bytes of a turn that is not over: `put_back` is to follow."""
        self._accounts[who].deficit -= sent * _SCALE

    def put_back(self, those: Iterable[K]) -> None:
        """Put those whose turn is not over at the head of their round, in the order of `take`."""
        for who in reversed(list(those)):
            self._line(self._accounts[who].round).appendleft(who)

    def _put_down(self, who: K, account: _Account, size: int) -> None:
        lacking = size * _SCALE - account.deficit
        if lacking > 0:
            rounds = -(-lacking // account.rate)
            account.round += rounds
            account.deficit += rounds * account.rate
        self._line(account.round).append(who)

    def _line(self, number: int) -> deque[K]:
        line = self._lines.get(number)
        if line is None:
            line = self._lines[number] = deque()
            heappush(self._rounds, number)
        return line
