"""A lineage as a tree of text: messages, their events by subscription, and what they led to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text
from rich.tree import Tree

from fairbox_pipeline.lineage import COMPLETION, COPY, iso_time, offset, printable

if TYPE_CHECKING:
    from fairbox_pipeline.lineage import Event, Lineage, Link, Message

MOST_REASON: Final = 200
"""Characters of a reason that are shown."""
_STYLES: Final = {
    **dict.fromkeys(("delivered",), "green"),
    **dict.fromkeys(("failed", "redriven", "outstanding"), "yellow"),
    **dict.fromkeys(("dead", "cancelled", "purged", "expired"), "red"),
}


def trees(lineage: Lineage) -> list[Tree]:
    """Return a tree for each message to which no other shown one led.

    A message stands once, under the first that led to it; later ones name its ref.
    """
    targets = {link.target for link in lineage.links if link.kind != COMPLETION}
    roots = [message for message in lineage.messages if message.ref not in targets]
    writer = _Writer(lineage)
    # a circle of links has no root
    return [
        writer.tree(message)
        for message in (*roots, *lineage.messages)
        if message.ref not in writer.shown
    ]


def notes(lineage: Lineage) -> list[str]:
    """Return a line for each kind of rows of which some are missing."""
    return [
        f"cut: there are more {what} than are shown"
        + ("" if what == "events" else f" ({lineage.limit:,} at most; see --limit)")
        for what in lineage.cut
    ]


class _Writer:
    """Writes messages of one lineage.

    Args:
        shown: refs of the messages that stand in a tree.
    """

    def __init__(self, lineage: Lineage) -> None:
        self._start = lineage.start
        self._messages = {message.ref: message for message in lineage.messages}
        self._links: dict[str, list[Link]] = {}
        for link in lineage.links:
            self._links.setdefault(link.source, []).append(link)
        self.shown: set[str] = set()

    def tree(self, message: Message) -> Tree:
        tree = Tree(_heading(message))
        self._fill(tree, message)
        return tree

    def _fill(self, tree: Tree, message: Message) -> None:
        self.shown.add(message.ref)
        if facts := _facts(message):
            tree.add(Text(printable(facts), "dim"))
        links = self._links.get(message.ref, [])
        for name, events in message.lanes().items():
            lane = tree if name is None else tree.add(Text(printable(_lane(name, events)), "bold"))
            for event in events:
                lane.add(self._event(event))
            for link in links:
                if link.kind == COPY and link.name == name:
                    self._follow(lane, "copy", link)
        for link in links:
            if link.kind == COMPLETION:
                tree.add(Text(printable(f"batch {link.name} ended: {link.target}")))
            elif link.kind != COPY:
                self._follow(tree, f"replay {link.name}", link)

    def _follow(self, tree: Tree, how: str, link: Link) -> None:
        """Write the message to which a link leads, unless it stands elsewhere."""
        message = self._messages.get(link.target or "")
        if link.target == link.source:
            tree.add(Text(printable(f"{how}: under the same id")))
        elif message is None:
            tree.add(Text(printable(f"{how}: {link.id}, which is not shown")))
        elif message.ref in self.shown:
            tree.add(Text(printable(f"{how}: {message.ref}, shown above")))
        else:
            self._fill(tree.add(Text.assemble(printable(f"{how}: "), _heading(message))), message)

    def _event(self, event: Event) -> Text:
        line = Text(f"{iso_time(event.at)}  {offset(event.at - self._start):>12}  ")
        line.append(event.event, _STYLES.get(event.event, ""))
        told = [] if event.attempt is None else [f"attempt {event.attempt}"]
        if event.reason:
            cut = "..." if len(event.reason) > MOST_REASON else ""
            told.append(printable(event.reason[:MOST_REASON]) + cut)
        return line.append("".join(f", {text}" for text in told))


def _heading(message: Message) -> Text:
    heading = Text.assemble((printable(message.ref), "bold"), "  ")
    heading.append(message.state, _STYLES[message.state])
    return heading.append("  (asked for)", "cyan") if message.asked else heading


def _facts(message: Message) -> str:
    told = {
        "key": message.partition_key,
        "content type": message.content_type,
        "bytes": message.size,
        "due": None if message.due is None else iso_time(message.due),
        "batch item": message.batch_item,
        "traceparent": message.traceparent,
    }
    return ", ".join(f"{name} {value}" for name, value in told.items() if value is not None)


def _lane(name: str, events: list[Event]) -> str:
    places = dict.fromkeys(event.destination for event in events if event.destination)
    return f"{name} to {', '.join(places)}" if places else name
