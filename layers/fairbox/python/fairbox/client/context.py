"""What the parts of the outbox share: tables, copies of topics, bodies, doorbells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.dynamodb.topics import ProducerTopics

if TYPE_CHECKING:
    from fairbox.dispatch.ports import Doorbells
    from fairbox.dynamodb.tables import Tables
    from fairbox.model.bodies import BodyStore


class OpenTables:
    """Tables that are open, with what stands beside them."""

    def _begin(self, tables: Tables, bodies: BodyStore | None, doorbells: Doorbells | None) -> None:
        self.tables = tables
        self._clock = tables.calls.clock
        self._topics = ProducerTopics(tables.topics, tables.calls)
        self._bodies = bodies
        self._doorbells = doorbells

    @property
    def bodies(self) -> BodyStore | None:
        """Where offloaded bodies lie; None: such bodies are refused."""
        return self._bodies
