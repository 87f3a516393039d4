"""A lineage as one SVG: a lane for each message and subscription, over time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, StrictUndefined

from fairbox_pipeline.lineage import iso_time, offset, printable
from fairbox_pipeline.report.lineage_tree import MOST_REASON, notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox_pipeline.lineage import Event, Lineage, Message

TEMPLATE: Final = "lineage.svg"
SHAPES: Final = {
    "added": "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0",
    "failed": "M0,-6L6,5L-6,5Z",
    "delivered": "M-6,0L-2,4L6,-5",
    "dead": "M-5,-5L5,5M5,-5L-5,5",
    "redriven": "M0,-6L6,0L0,6L-6,0Z",
    "cancelled": "M-5,-5H5V5H-5Z",
    "purged": "M-5,-5H5V5H-5ZM-5,-5L5,5",
    "expired": "M-5,-5H5L-5,5H5Z",
}
_LEFT: Final = 400
_RIGHT: Final = 120
_TOP: Final = 84
_LANE: Final = 24
_HEADING: Final = 30
_WIDTHS: Final = (640, 1600)
_A_TIME: Final = 48
"""Pixels for each distinct time, within the widths."""
_APART: Final = 14
"""Pixels between marks of one lane, so that none hides another."""
_TICKS: Final = 96
_LABEL: Final = 44


@dataclass(frozen=True, slots=True)
class Mark:
    """One event in its lane."""

    kind: str
    x: float
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the picture: of a message, or of one of its subscriptions."""

    y: int
    label: str
    title: str
    heading: bool
    asked: bool
    state: str
    marks: list[Mark]


@dataclass(frozen=True, slots=True)
class Arrow:
    """A step from one message to another, as a path."""

    kind: str
    path: str
    title: str


class Scale:
    """Places of times: a gap is as wide as the logarithm of its length, so that none hides another.

    Args:
        times: ms, in any order.
    """

    def __init__(self, times: Sequence[int]) -> None:
        ordered = sorted(set(times))
        gaps = [1 + math.log10(1 + after - before) for before, after in pairwise(ordered)]
        self.width = min(max(_A_TIME * len(ordered), _WIDTHS[0]), _WIDTHS[1])
        unit = self.width / sum(gaps) if gaps else 0.0
        place = float(_LEFT)
        self._places = {ordered[0]: place}
        for time, gap in zip(ordered[1:], gaps, strict=True):
            place += gap * unit
            self._places[time] = place

    def __getitem__(self, time: int) -> float:
        return round(self._places[time], 1)

    def ticks(self) -> list[tuple[float, str]]:
        """Return places and labels of times, as many as do not overlap."""
        start = next(iter(self._places))
        chosen: list[tuple[float, str]] = []
        for time, place in self._places.items():
            if not chosen or place - chosen[-1][0] >= _TICKS:
                chosen.append((round(place, 1), offset(time - start)))
        return chosen


def picture(lineage: Lineage) -> str:
    """Return the SVG: self-contained, with light and dark colours, every text escaped."""
    scale = Scale([e.at for m in lineage.messages for e in m.events] or [lineage.start])
    lanes: list[Lane] = []
    places: dict[tuple[str, str | None], Lane] = {}
    y = _TOP
    for message in lineage.messages:
        y += _HEADING - _LANE
        for name, events in message.lanes().items():
            y += _LANE
            lanes.append(_lane(y, message, name, _marks(events, scale)))
            places[message.ref, name] = lanes[-1]
    template = (files(__package__) / TEMPLATE).read_text("utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    kinds = {mark.kind for lane in lanes for mark in lane.marks}
    return environment.from_string(template).render(
        title=f"Lineage of {len(lineage.messages):,} messages, from {iso_time(lineage.start)}",
        lanes=lanes,
        arrows=_arrows(lineage, places),
        ticks=scale.ticks(),
        shapes=SHAPES,
        legend=[kind for kind in SHAPES if kind in kinds],
        notes=notes(lineage),
        top=_TOP,
        left=_LEFT,
        right=_LEFT + scale.width,
        width=_LEFT + scale.width + _RIGHT,
        bottom=y + _LANE,
    )


def _lane(y: int, message: Message, name: str | None, marks: list[Mark]) -> Lane:
    heading = name is None
    title = printable(message.ref if name is None else name)
    state = message.state if heading else ""
    return Lane(y, _shortened(title), title, heading, heading and message.asked, state, marks)


def _shortened(text: str) -> str:
    """Keep both ends of a long text: a ref ends with its id."""
    if len(text) <= _LABEL:
        return text
    return f"{text[: _LABEL // 4]}…{text[-(_LABEL - _LABEL // 4 - 1) :]}"


def _marks(events: Sequence[Event], scale: Scale) -> list[Mark]:
    marks: list[Mark] = []
    for event in sorted(events, key=lambda one: one.at):
        place = scale[event.at]
        if marks and place < marks[-1].x + _APART:
            place = round(marks[-1].x + _APART, 1)
        marks.append(Mark(event.event, place, _told(event)))
    return marks


def _told(event: Event) -> str:
    parts = [event.event, iso_time(event.at)]
    parts += [] if event.attempt is None else [f"attempt {event.attempt}"]
    parts += [text for text in (event.destination, event.reason) if text]
    return ", ".join(printable(part[:MOST_REASON]) for part in parts)


def _arrows(lineage: Lineage, places: dict[tuple[str, str | None], Lane]) -> list[Arrow]:
    """Return the arrows between messages that both stand in the picture."""
    arrows = []
    for link in lineage.links:
        ends = (link.source, link.name if link.kind == "copy" else None), (link.target or "", None)
        if link.source == link.target or not all(end in places for end in ends):
            continue
        source, target = places[ends[0]], places[ends[1]]
        x1 = source.marks[-1].x if source.marks else _LEFT
        x2 = target.marks[0].x if target.marks else _LEFT
        bend = max(30.0, abs(x2 - x1) / 3)
        # a copy has its id's time, so its arrow may lead back: it comes in from the left
        path = (
            f"M{x1 + 7:.1f},{source.y} C{x1 + bend:.1f},{source.y} "
            f"{x2 - bend:.1f},{target.y} {x2 - 9:.1f},{target.y}"
        )
        title = printable(f"{link.kind} {link.name}: {link.source} to {link.target}")
        arrows.append(Arrow(link.kind, path, title))
    return arrows
