"""A small run as journals; tests change a line and check the findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from local.accounting import journal
from local.accounting.account import Account, account
from local.accounting.evidence import load, write_state

if TYPE_CHECKING:
    from pathlib import Path

QUEUED, HOOKED, ORDERED, EVENTS, COPIED, JOBS, LINES, ITEMS = (
    f"chaos.{name}"
    for name in ("queued", "hooked", "ordered", "events", "copied", "jobs", "lines", "items")
)


@dataclass
class Story:
    """Lines by journal; `told` writes them and returns the account."""

    folder: Path
    produced: list[dict[str, Any]] = field(default_factory=list)
    arrived: list[dict[str, Any]] = field(default_factory=list)
    state: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _clock: int = 0

    def tries(self, name: str, topic: str, *, key: str | None = None, how: str = "add") -> str:
        """A producer tries a message; return its id, which grows."""
        self._clock += 1
        id_ = f"id-{self._clock:03}"
        known = None if how == "post" else id_
        self.produced.append({"t": "try", "n": name, "topic": topic, "key": key, "how": how})
        self.produced[-1]["id"] = known
        return id_

    def sends(self, name: str, topic: str, *, key: str | None = None, how: str = "add") -> str:
        """A producer tries a message, which is acknowledged."""
        id_ = self.tries(name, topic, key=key, how=how)
        self.produced.append({"t": "ok", "n": name, "topic": topic, "ref": ref(topic, id_)})
        return id_

    def says(self, what: str, name: str, topic: str) -> None:
        """A producer records an operation on a message."""
        self.produced.append({"t": what, "n": name, "topic": topic})

    def arrives(self, name: str, topic: str, taker: str, id_: str, *, edition: int = 0) -> None:
        """A message arrives at a taker."""
        self._clock += 1
        self.arrived.append(
            {"topic": topic, "taker": taker, "n": name, "e": edition, "at": self._clock}
        )
        self.arrived[-1]["ref"] = ref(topic, id_)

    def records(self, topic: str, taker: str, id_: str) -> None:
        """The ledger records a delivery."""
        self.state.append(("ledger", {"topic": topic, "taker": taker, "id": id_}))

    def delivers(self, name: str, topic: str, taker: str, id_: str, **arrival: Any) -> None:
        """A message arrives at a taker and in the ledger."""
        self.arrives(name, topic, taker, id_, **arrival)
        self.records(topic, taker, id_)

    def stands(self, state: str, topic: str, taker: str, id_: str) -> None:
        """A table holds a message."""
        self.state.append((state, {"topic": topic, "taker": taker, "id": id_}))

    def opens(self, batch: str, *fate: str) -> None:
        """A producer opens a batch and seals it."""
        self.produced.append({"t": "batch", "batch": batch, "fate": list(fate)})
        self.produced.append({"t": "filled", "batch": batch})

    def announces(self, batch: str, id_: str, acked: int, failed: int) -> None:
        """A batch's completion arrives."""
        total = acked + failed
        self.arrived.append({"batch": batch, "id": id_, "total": total, "acked": acked})
        self.arrived[-1] |= {"failed": failed, "at": 1}

    def told(self) -> Account:
        """Write all lines and return the account."""
        for kind, lines in (("producers", self.produced), ("arrivals", self.arrived)):
            path = self.folder / "journals" / kind / "one.jsonl"
            path.unlink(missing_ok=True)
            written = journal.Journal(path)
            for line in lines:
                written.write(**line)
            written.close()
        write_state(self.folder, self.state)
        return account(load(self.folder))

    def found(self) -> list[tuple[str, str]]:
        """Return the kinds of findings, and what each is about."""
        return [(finding.kind, finding.name) for finding in self.told().findings]


def ref(topic: str, id_: str) -> str:
    return f"{topic}/0/1/{id_}"
