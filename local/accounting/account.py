"""The account of a run: every message sent is in exactly one class, or it is a finding."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from local.accounting.order import KeyOrder
from local.accounting.topics import ACCOUNTED, COMPLETED, EVENTS, ITEMS, PULL, Route

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from local.accounting.evidence import Arrival, Evidence


@dataclass
class Row:
    """The figures of one topic and taker.

    `sent` = `delivered` + `outstanding` + `dead` + `cancelled` + `lost`. `again` counts
    deliveries beyond the first; `unknown` counts delivered messages whose producer never learned
    whether they were published; `also` counts dead and cancelled messages that the taker received.
    """

    topic: str
    taker: str
    sent: int = 0
    delivered: int = 0
    outstanding: int = 0
    dead: int = 0
    cancelled: int = 0
    lost: int = 0
    again: int = 0
    unknown: int = 0
    also: int = 0
    out_of_order: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation: its kind, its place, the message or batch, and details."""

    kind: str
    topic: str
    taker: str
    name: str
    detail: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in astuple(self) if part)


@dataclass
class Batches:
    """The figures of the batches: sealed with all items, and announced.

    `repeats` are deliveries of an announcement beyond the first.
    """

    filled: int = 0
    announced: int = 0
    repeats: int = 0
    items: int = 0
    failed_items: int = 0


@dataclass
class Account:
    """A run's figures and findings."""

    rows: list[Row] = field(default_factory=list)
    batches: Batches = field(default_factory=Batches)
    findings: list[Finding] = field(default_factory=list)

    @property
    def total(self) -> Row:
        """The sums over all rows."""
        sums = {f.name: sum(getattr(row, f.name) for row in self.rows) for f in fields(Row)[2:]}
        return Row("all", "", **sums)


def account(found: Evidence) -> Account:
    """Return the account of the evidence."""
    made = Account()
    for route in ACCOUNTED:
        for taker in route.takers:
            one = _Taker(found, route, taker)
            made.findings += one.check()
            made.rows.append(one.row)
    made.findings += _strangers(found)
    made.findings += _business(found)
    made.findings += _batches(found, made.batches)
    made.findings += _counts(found)
    return made


class _Taker:
    """One topic's messages at one of its takers."""

    def __init__(self, found: Evidence, route: Route, taker: str) -> None:
        self._found = found
        self._route = route
        self._place = (route.name, taker)
        self._ids = {
            name: ids for name, ids in found.ids().items() if self._topic(name) == route.name
        }
        self.row = Row(route.name, taker)

    def _topic(self, name: str) -> str | None:
        tried = self._found.tries.get(name)
        return None if tried is None else tried.topic

    def check(self) -> list[Finding]:
        """Fill the row; return the findings."""
        findings = [f for name in self._ids for f in self._message(name)]
        if self._route.ordered:
            findings += self._order()
        return [*findings, *self._ledger()]

    def _message(self, name: str) -> Iterator[Finding]:
        row, found = self.row, self._found
        seen = found.arrivals.get((*self._place, name), [])
        row.again += max(0, len(seen) - 1)
        classes = self._classes(name)
        if name not in found.acked and name not in found.business:
            row.unknown += bool(seen) and not classes
            return
        row.sent += 1
        if len(classes) > 1:
            yield self._finding("in two classes", name, " and ".join(classes))
        elif classes:
            setattr(row, classes[0], getattr(row, classes[0]) + 1)
            row.also += bool(seen)
            if classes[0] == "outstanding":
                yield self._finding("still outstanding", name)
        elif name in found.maybe_cancelled and not self._recorded(seen):
            row.cancelled += 1
            row.also += bool(seen)  # sent before the cancel; the ledger says which won
        elif seen:
            row.delivered += 1
            yield from self._delivered(name)
        else:
            row.lost += 1
            yield self._finding("lost", name, f"acknowledged as {found.acked.get(name)}")

    def _classes(self, name: str) -> list[str]:
        """Return the classes that the tables and the producers put a message in."""
        ids, found = self._ids[name], self._found
        classes = []
        if ids & found.outstanding.get(self._place, set()):
            classes.append("outstanding")
        if ids & found.dead.get(self._place, set()):
            classes.append("dead")
        if name in found.cancelled:
            classes.append("cancelled")
        return classes

    def _recorded(self, seen: Iterable[Arrival]) -> bool:
        return any((*self._place, arrival.id) in self._found.recorded for arrival in seen)

    def _delivered(self, name: str) -> Iterator[Finding]:
        found, seen = self._found, self._found.arrivals[*self._place, name]
        if not self._recorded(seen):
            yield self._finding("not in the ledger", name, seen[0].id)
        if name in found.edited and not any(arrival.edition for arrival in seen):
            yield self._finding("edit lost", name)
        if self._route is EVENTS and len(self._ids[name]) > 1:
            yield self._finding("published twice in its window", name)

    def _order(self) -> Iterator[Finding]:
        """Yield first deliveries below the greatest id of their key delivered before."""
        firsts = sorted(
            (min(seen, key=lambda arrival: arrival.at).at, name)
            for (topic, taker, name), seen in self._found.arrivals.items()
            if (topic, taker) == self._place and name in self._ids
        )
        order = KeyOrder()
        for _, name in firsts:
            key, id_ = self._found.tries[name].key, min(self._ids[name])
            if (earlier := order.overtaken(key, id_, name)) is not None:
                self.row.out_of_order += 1
                yield self._finding("out of order", name, f"came after {earlier}")

    def _ledger(self) -> Iterator[Finding]:
        """Yield deliveries that the ledger records and no taker saw."""
        seen = {a.id for name in self._ids for a in self._arrivals(name)}
        waiting = self._found.outstanding.get(self._place, set())
        waiting = waiting | self._found.dead.get(self._place, set())
        for topic, taker, id_ in sorted(self._found.recorded):
            if (topic, taker) == self._place and id_ not in seen and id_ not in waiting:
                yield self._finding("recorded, and never seen", id_)

    def _arrivals(self, name: str) -> list[Arrival]:
        return self._found.arrivals.get((*self._place, name), [])

    def _finding(self, kind: str, name: str, detail: str = "") -> Finding:
        return Finding(kind, *self._place, name, detail)


def _strangers(found: Evidence) -> Iterator[Finding]:
    for topic, taker, name in found.arrivals:
        if name not in found.tries:
            yield Finding("nobody published", topic, taker, name)
        elif found.tries[name].topic != topic:
            yield Finding("at the wrong taker", topic, taker, name)


def _business(found: Evidence) -> Iterator[Finding]:
    """Yield acknowledged transactions without a row, and rows without a transaction."""
    transacted = {name for name, tried in found.tries.items() if tried.how == "transact"}
    for name in sorted((transacted & set(found.acked)) - found.business):
        yield Finding("no business row", found.tries[name].topic, "", name)
    for name in sorted(found.business - transacted):
        yield Finding("a business row of nobody", "", "", name)


def _batches(found: Evidence, made: Batches) -> Iterator[Finding]:
    dead = found.dead.get((ITEMS.name, PULL), set())
    for batch, fate in found.batches.items():
        made.items += len(fate)
        made.filled += batch in found.filled
        told = {told["id"]: told for told in found.completions.get(batch, [])}
        made.announced += bool(told)
        made.repeats += len(found.completions.get(batch, [])) - len(told)
        if len(told) > 1:
            yield Finding("announced twice", COMPLETED.name, "", batch, " and ".join(told))
        for one in told.values():
            made.failed_items += one["failed"]
            yield from _told(found, batch, one, dead)
        if batch in found.filled and not told:
            yield Finding("never announced", COMPLETED.name, "", batch)
        if batch not in found.filled:
            yield Finding("never filled", "", "", batch, "its producer did not finish")
    for batch in set(found.completions) - set(found.batches):
        yield Finding("announced, and nobody's", COMPLETED.name, "", batch)


def _told(found: Evidence, batch: str, told: dict[str, Any], dead: set[str]) -> Iterator[Finding]:
    """Compare an announcement's figures with the items' fates."""
    fate = found.batches[batch]
    names = [f"{batch}.{number}" for number in range(len(fate))]
    died = [n for n in names if n in found.tries and found.tries[n].id in dead]
    handled = [n for n in died if (ITEMS.name, PULL, n) in found.arrivals]
    most = fate.count("fail") + len(died)
    settled = told["acked"] + told["failed"]
    if told["total"] != len(fate) or settled != len(fate):
        yield Finding("wrong total", COMPLETED.name, "", batch, f"{told} of {len(fate)}")
    if not most - len(handled) <= told["failed"] <= most:
        detail = f"{told['failed']}, not {most}"
        yield Finding("wrong number of failed items", COMPLETED.name, "", batch, detail)


def _counts(found: Evidence) -> Iterator[Finding]:
    for line in found.counts:
        if line["counted"] != line["true"]:
            detail = f"{line['counted']}, not {line['true']}"
            yield Finding("miscounted", line["topic"], "", "", detail)
