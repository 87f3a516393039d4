"""Invariants of simulated batches, over the answers that callers got and the stored records."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from fairbox.batches.models import item_ids
from fairbox.client.batches import COMPLETED_TOPIC, ORPHANED_TOPIC

from fairbox_simulation.batches.invariants import broken_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fairbox.batches.results import Group

    from fairbox_simulation.batches.tables import Announced, Tables


class Oracle:
    """Keeps what was asked and answered, and says what contradicts it.

    Attributes:
        breaches: what was wrong so far.
        issued: item ids handed out, by batch.
        ending: batches of which somebody began a cancel or a reap.
        fenced: batches of which somebody was told that they are cancelled or reaped.
        on_issue: called when the first items are handed out.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.breaches: list[str] = []
        self.issued: defaultdict[str, list[str]] = defaultdict(list)
        self.ending: set[str] = set()
        self.fenced: set[str] = set()
        self.on_issue: Callable[[], None] = lambda: None
        self._groups: dict[tuple[str, str], list[Group]] = {}
        self._acked: set[str] = set()
        self._fails: set[str] = set()
        self._reported: Counter[str] = Counter()
        tables.on_announcement = self._announced

    def handed_out(self, batch: str, request: str, groups: list[Group]) -> None:
        """Note the answer of an add: the same request must always get the same."""
        before = self._groups.setdefault((batch, request), groups)
        if before != groups:
            self.breaches.append(
                f"another answer: add {request} of {batch}: {before}, then {groups}"
            )
        elif before is groups:
            first = not self.issued
            self.issued[batch] += [item for group in groups for item in group.item_ids()]
            if first:
                self.on_issue()

    def begins(self, verb: str, items: Iterable[str]) -> None:
        """Note that items are about to be settled, or put back."""
        if verb == "fail":
            self._fails.update(items)

    def settled(self, verb: str, items: Iterable[str]) -> None:
        """Note that a call has returned."""
        if verb == "ack":
            self._acked.update(items)

    def completed(self, batches: Iterable[str]) -> None:
        """Note which batches a call said that it completed."""
        self._reported.update(batches)

    def _announced(self, topic: str, body: Announced) -> None:
        """Judge a message in the very moment in which it is written."""
        found, batch = self._tables.pieces(), body["id"]
        leaves = found.committed(batch)
        pending = sum(leaf.count for leaf in leaves)
        failed = sum(leaf.failed for leaf in leaves)
        total = sum(leaf.size for leaf in leaves)
        if topic == COMPLETED_TOPIC and pending:
            self.breaches.append(f"announced early: {batch}, {pending} items pending")
        truth = {"total": total, "failed": failed, "acked": total - failed - pending}
        told = {name: body[name] for name in truth}
        if topic == COMPLETED_TOPIC and told != truth:
            self.breaches.append(f"announced wrongly: {batch} as {told}, is {truth}")
        if topic == COMPLETED_TOPIC and found.roots[batch].state != "complete":
            self.breaches.append(f"announced early: {batch}, {found.roots[batch].state}")

    def after_the_storm(self) -> None:
        """Judge what stands when all actors have stopped, finished or killed."""
        self._identities()
        pending = self._tables.pieces().pending_items()
        self._accuse("acked, and pending again: ", pending & self._sure())

    def _sure(self) -> set[str]:
        """Items that were acked and never failed: no retry can put them back."""
        return self._acked - self._fails

    def left(self) -> list[str]:
        """Return the items that are pending in batches that have not ended."""
        found = self._tables.pieces()
        return sorted(
            item
            for leaf in found.leaves.values()
            if leaf.count and not found.roots[leaf.batch].ended
            for item in item_ids(leaf)
        )

    def at_the_end(self, planned: dict[str, int]) -> None:
        """Judge batches after a calm in which all was sealed, settled and cascaded.

        Args:
            planned: batch -> items that its adds have when none is refused.
        """
        self._identities()
        found = self._tables.pieces()
        if found.stuck():
            self.breaches.append(f"never completed: {found.stuck()}")
        orphans = Counter(body["id"] for body in self._tables.messages(ORPHANED_TOPIC))
        for batch, total in planned.items():
            root = found.roots.get(batch)
            if root is None:
                continue  # a part whose item was settled before it was opened
            if batch not in self.ending and root.state != "complete":
                self.breaches.append(f"never completed: {batch}, settled, sealed and {root.state}")
            if root.state == "complete" and root.total != total:
                self.breaches.append(
                    f"completed without all: {batch}, {root.total} of {total} items"
                )
            if orphans[batch] != (root.state == "reaped"):
                self.breaches.append(f"orphan notes: {batch} is {root.state} with {orphans[batch]}")
        failed = {item for key in found.failed.values() for item in _failed_ids(key)}
        self._accuse("acked, and failed: ", failed & self._sure())
        for batch, count in self._reported.items():
            if found.roots[batch].state != "complete":
                self.breaches.append(f"reported, and not complete: {batch}, {count} times")

    def _identities(self) -> None:
        messages = [body["id"] for body in self._tables.messages(COMPLETED_TOPIC)]
        problem = broken_pieces(self._tables.pieces(), messages)
        if problem:
            self.breaches.append(f"identity: {problem}")

    def _accuse(self, what: str, items: set[str]) -> None:
        if items:
            self.breaches.append(f"{what}{sorted(items)}")


def _failed_ids(record: Any) -> list[str]:
    return [
        f"{record.batch}:{record.group}:{i}" for i in range(record.size) if record.bits >> i & 1
    ]
