"""The evidence of a run: records of producers and takers, and the tables at the end."""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from local.accounting import journal
from local.accounting.topics import BY_TOPIC, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

STATES: Final = ("outstanding", "dead", "ledger", "business", "counts")
Place = tuple[str, str, str]
"""Topic, taker and name of a message."""


@dataclass(frozen=True, slots=True)
class Try:
    """A message that a producer tried to publish; its id is None where the API gives it."""

    topic: str
    key: str | None
    how: str
    id: str | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message at a taker: under which id, in which edition, when on this machine's clock (ns)."""

    id: str
    edition: int
    at: int


@dataclass
class Evidence:
    """All that is known of a run's messages, by their names.

    Attributes:
        tries: what producers tried to publish.
        acked: ids of what was acknowledged to them.
        cancelled, edited: names of which that was acknowledged.
        maybe_cancelled: names of which a cancel was tried whose outcome nobody was told.
        batches: fates of the items by batch; `filled`: those that are sealed and have all messages.
        arrivals: by place, copies counted where they came from.
        completions: announcements of batches, as they arrived.
        outstanding, dead: ids in the tables by topic and taker.
        recorded: (topic, taker, id) of the ledger.
        business: names that have a business row.
        counts: of each topic the rows' counts and the true ones.
    """

    tries: dict[str, Try] = field(default_factory=dict)
    acked: dict[str, str] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    maybe_cancelled: set[str] = field(default_factory=set)
    edited: set[str] = field(default_factory=set)
    batches: dict[str, list[str]] = field(default_factory=dict)
    filled: set[str] = field(default_factory=set)
    arrivals: dict[Place, list[Arrival]] = field(default_factory=lambda: defaultdict(list))
    completions: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    outstanding: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    dead: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    recorded: set[Place] = field(default_factory=set)
    business: set[str] = field(default_factory=set)
    counts: list[dict[str, Any]] = field(default_factory=list)

    def ids(self) -> dict[str, set[str]]:
        """Return the ids under which each name is known."""
        found: dict[str, set[str]] = defaultdict(set)
        for name, tried in self.tries.items():
            if tried.id is not None:
                found[name].add(tried.id)
        for name, id_ in self.acked.items():
            found[name].add(id_)
        for (_, _, name), arrivals in self.arrivals.items():
            found[name].update(arrival.id for arrival in arrivals)
        return found


def load(folder: Path) -> Evidence:
    """Return the evidence of a run from its journals and the state written at its end."""
    found = Evidence()
    for line in journal.read_all(folder / "journals" / "producers"):
        _produced(found, line)
    for line in journal.read_all(folder / "journals" / "arrivals"):
        _arrived(found, line)
    for line in journal.read_all(folder / "state"):
        _stands(found, line)
    return found


def _produced(found: Evidence, line: Mapping[str, Any]) -> None:
    match line["t"]:
        case "try":
            tried = Try(line["topic"], line["key"], line["how"], line["id"])
            found.tries.setdefault(line["n"], tried)
        case "ok":
            found.acked[line["n"]] = id_of(line["ref"])
        case "cancel":
            found.maybe_cancelled.add(line["n"])
        case "cancelled":
            found.cancelled.add(line["n"])
        case "kept":
            found.maybe_cancelled.discard(line["n"])
        case "edited":
            found.edited.add(line["n"])
        case "batch":
            found.batches[line["batch"]] = line["fate"]
        case "filled":
            found.filled.add(line["batch"])


def _arrived(found: Evidence, line: Mapping[str, Any]) -> None:
    if "batch" in line:
        found.completions[line["batch"]].append(dict(line))
        return
    place = place_of(line["topic"], line["taker"])
    id_ = line["id"] if "id" in line else id_of(line["ref"])
    found.arrivals[*place, line["n"]].append(Arrival(id_, line["e"], line["at"]))


def _stands(found: Evidence, line: Mapping[str, Any]) -> None:
    match line["s"]:
        case "outstanding":
            found.outstanding[place_of(line["topic"], line["taker"])].add(line["id"])
        case "dead":
            found.dead[place_of(line["topic"], line["taker"])].add(line["id"])
        case "ledger":
            if BY_TOPIC[line["topic"]].copies is None:
                found.recorded.add((line["topic"], line["taker"], line["id"]))
        case "business":
            found.business.add(line["n"])
        case "counts":
            found.counts.append(dict(line))


def id_of(ref: str) -> str:
    """Return the id that a ref names."""
    return ref.split("/")[3]


def write_state(folder: Path, lines: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Write what stands in the tables, as (kind, fields), in place of what was written before."""
    shutil.rmtree(folder / "state", ignore_errors=True)
    journals = {kind: journal.Journal(folder / "state" / f"{kind}.jsonl") for kind in STATES}
    for kind, fields in lines:
        journals[kind].write(s=kind, **fields)
    for one in journals.values():
        one.close()
