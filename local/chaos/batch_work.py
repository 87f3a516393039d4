"""The batches of a chaos producer; its next life resumes a batch that a kill interrupted."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fairbox import BatchBusy, Batches, Message, Throttled, Unavailable

from local.accounting.topics import ITEMS
from local.chaos.sender import body_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from local.accounting.journal import Journal
    from local.chaos.sender import Sender

GROUP_SIZE: Final = 4
_POISON: Final = 0.05
_DIRECT: Final = 0.25
_FAILED: Final = 0.3


@dataclass
class Work:
    """A batch in a producer's journal.

    Attributes:
        fate: `message`, `poison`, `ack` or `fail` for each item by its number.
        sent: message ids by name; the acknowledged ones are in `known`.
        filled: it is sealed, and every item has its message or its outcome.
    """

    batch: str
    fate: list[str]
    sent: dict[str, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    filled: bool = False


def recorded(lines: Iterable[dict[str, Any]]) -> dict[str, Work]:
    """Return the batches of a producer's journal in their last recorded state."""
    found: dict[str, Work] = {}
    names: dict[str, Work] = {}
    for line in lines:
        if line["t"] == "batch":
            found[line["batch"]] = Work(line["batch"], line["fate"])
        elif line["t"] == "filled":
            found[line["batch"]].filled = True
        elif line["t"] == "try" and line.get("batch"):
            work = names[line["n"]] = found[line["batch"]]
            work.sent[line["n"]] = line["id"]
        elif line["t"] == "ok" and line["n"] in names:
            names[line["n"]].known.add(line["n"])
    return found


class Batching:
    """Processes batches one after the other.

    Args:
        batches: the library.
        sender: publishes the items' messages.
        journal: the producer's own journal.
        rng: chooses sizes and fates.
        pause: waits between tries.
    """

    def __init__(
        self,
        batches: Batches,
        sender: Sender,
        journal: Journal,
        rng: random.Random,
        pause: Callable[[], None],
    ) -> None:
        self._batches = batches
        self._sender = sender
        self._journal = journal
        self._rng = rng
        self._pause = pause

    def begin(self) -> Work:
        """Choose a batch and record it."""
        id_ = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        work = Work(id_, [self._fate() for _ in range(self._rng.randint(1, 12))])
        self._journal.write(t="batch", batch=id_, fate=work.fate)
        return work

    def _fate(self) -> str:
        if self._rng.random() < _DIRECT:
            return "fail" if self._rng.random() < _FAILED else "ack"
        return "poison" if self._rng.random() < _POISON else "message"

    def finish(self, work: Work) -> None:
        """Complete a batch; every step may be repeated."""
        self._repeat(lambda: self._batches.open(user_key="chaos", id=work.batch))
        groups = self._repeat(
            lambda: self._batches.add(
                work.batch, len(work.fate), request_id=work.batch, group_size=GROUP_SIZE
            )
        )
        items = [item for group in groups for item in group.item_ids()]
        early = self._rng.random() < 0.5
        if early:
            self._seal(work)
        for number, item in enumerate(items):
            self._settle(work, number, item)
        if not early:
            self._seal(work)
        self._journal.write(t="filled", batch=work.batch)

    def _settle(self, work: Work, number: int, item: str) -> None:
        fate = work.fate[number]
        if fate == "ack":
            self._repeat(lambda: self._batches.ack([item]))
        elif fate == "fail":
            self._repeat(lambda: self._batches.fail([item], reason="chaos"))
        else:
            self._publish(work, f"{work.batch}.{number}", item)

    def _publish(self, work: Work, name: str, item: str) -> None:
        if name in work.known:
            return
        poison = work.fate[int(name.rpartition(".")[2])] == "poison"
        message = Message(
            topic=ITEMS.name,
            body=body_of(name, poison=poison),
            content_type="application/json",
            batch_item=item,
            id=work.sent.get(name, ""),
        )
        self._sender.add(message, batch=work.batch)

    def _seal(self, work: Work) -> None:
        self._repeat(lambda: self._batches.seal(work.batch))

    def _repeat(self, call: Callable[[], Any]) -> Any:
        while True:
            try:
                return call()
            except (Throttled, Unavailable, BatchBusy):
                self._pause()
