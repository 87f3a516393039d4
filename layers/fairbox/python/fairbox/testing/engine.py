"""The state of the in-memory engine: its tables, its clock, its sequence of changes."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Protocol

from .refusals import Refusal
from .streams import FIRST_SEQUENCE, Stream

if TYPE_CHECKING:
    from .memory_tables import Table
    from .stores import Position, Row

TOKEN_LIFE: Final = 600.0  # seconds for which a ClientRequestToken is remembered


class Clock(Protocol):
    """Anything that tells the time."""

    def now(self) -> float:
        """Seconds since 1970, UTC."""


class Engine:
    """State that all operations share. Not locked: the client holds the lock for each operation."""

    def __init__(self, clock: Clock, index_lag: float, region: str) -> None:
        self.clock = clock
        self.index_lag = index_lag
        self.region = region
        self.tables: dict[str, Table] = {}
        self.retired_streams: dict[str, Stream] = {}
        self.tokens: OrderedDict[str, tuple[float, str, dict[str, Any]]] = OrderedDict()
        self._sequence = FIRST_SEQUENCE

    def table(self, name: str) -> Table:
        """The table of that name; ResourceNotFoundException where there is none."""
        table = self.tables.get(name)
        if table is None:
            raise Refusal("ResourceNotFoundException", "Requested resource not found")
        return table

    def write(
        self,
        table: Table,
        key: Position,
        old: Row | None,
        new: Row | None,
        *,
        expired: bool = False,
    ) -> dict[str, int]:
        """Apply one change now; the units of each index that it touched."""
        # one count for all tables: each stream then has numbers that grow, as on AWS with gaps
        self._sequence += 1
        return table.write(
            key,
            old,
            new,
            at=self.clock.now(),
            sequence=self._sequence,
            lag=self.index_lag,
            expired=expired,
        )

    def remembered(self, token: str) -> tuple[str, dict[str, Any]] | None:
        """The fingerprint and the answer of a transaction that had this token, while it lives."""
        now = self.clock.now()
        while self.tokens:
            # all live equally long, so the order of insertion is the order of ending
            oldest = next(iter(self.tokens))
            if self.tokens[oldest][0] > now:
                break
            del self.tokens[oldest]
        found = self.tokens.get(token)
        return None if found is None else (found[1], found[2])

    def remember(self, token: str, fingerprint: str, answer: dict[str, Any]) -> None:
        """Keep the answer of a transaction for ten minutes."""
        self.tokens[token] = (self.clock.now() + TOKEN_LIFE, fingerprint, answer)
