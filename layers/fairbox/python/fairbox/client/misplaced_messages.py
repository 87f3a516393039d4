"""Misplaced messages: found by a scan, and moved one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.client.outbox_context import OutboxPart
from fairbox.errors import InvalidInput, UnknownTopic, Unreadable
from fairbox.model.epochs import belongs
from fairbox.tables.message_edits import Edits
from fairbox.tables.repair_cursor import RepairTable
from fairbox.tables.shard_rows import is_shard_row
from fairbox.tables.stored_messages import StoredMessage, read_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox.model.messages import MessageRef
    from fairbox.model.topic_states import TopicState

UNITS_A_SECOND: Final = 200.0


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A message that does not lie where its topic's epochs put it.

    Attributes:
        ref: its place.
        belongs: the place where it belongs.
    """

    ref: MessageRef
    belongs: MessageRef


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """The result of a repair of misplaced messages; of a dry run, the expected result.

    Attributes:
        moved: the messages that were moved, with their old and new places.
        left: messages that were claimed, partly dead, or being changed: they are unchanged.
        scanned: number of items read.
        dry_run: nothing was changed.
    """

    moved: tuple[Misplaced, ...] = ()
    left: tuple[MessageRef, ...] = ()
    scanned: int = 0
    dry_run: bool = False


@dataclass(slots=True)
class _Scan:
    """The number of items that a scan has read."""

    items: int = 0


class MisplacedMessages(OutboxPart):
    """Finds misplaced messages, and moves them."""

    def misplaced(
        self, topic: str | None = None, *, units_a_second: float = UNITS_A_SECOND
    ) -> Iterator[Misplaced]:
        """Yield the messages that do not lie where their topic's epochs put them, by a scan.

        Fairbox itself misplaces none. Producers whose clocks are more than half a minute ahead
        during a resize do, and programs that compute shards themselves. A misplaced message is
        delivered and received where it lies, unless its epoch is not listed.

        Args:
            topic: the topic; None: all.
            units_a_second: maximum rate of the scan in read units.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidInput: `units_a_second` is not a number over 0.
        """
        for _, found in self._misplaced(topic, units_a_second, _Scan()):
            yield found

    def repair_misplaced(
        self,
        topic: str | None = None,
        *,
        dry_run: bool = False,
        units_a_second: float = UNITS_A_SECOND,
        progress: Callable[[int], None] | None = None,
    ) -> PlacementResult:
        """Move misplaced messages to where they belong, each in one transaction (5 WRU a KB).

        The oldest messages of a key move first, so that on ordered topics no misplaced message
        overtakes another. Later messages in their right place may have been delivered before, and a
        message that is being sent at the same time may be sent again. A moved message has a new
        ref, and the archive shows the old one as cancelled, with the new place. The call may be
        repeated.

        Args:
            topic: the topic; None: all.
            dry_run: change nothing, and return the messages that would be moved.
            units_a_second: maximum rate of the scan in read units.
            progress: called with the number of items read.

        Raises:
            As `misplaced` does.
            Throttled, Unavailable: call again.
        """
        edits = Edits(self.tables)
        moved: list[Misplaced] = []
        left: list[MessageRef] = []
        scan = _Scan()

        for state, found in self._misplaced(topic, units_a_second, scan, progress):
            ordered = state.topic.ordering == "key" and not state.pushed
            now = self._context.now
            done = dry_run or edits.relocate(found.ref, found.belongs, now, ordered=ordered)
            if done:
                moved.append(found)
            else:
                left.append(found.ref)

        return PlacementResult(tuple(moved), tuple(left), scan.items, dry_run)

    def _misplaced(
        self,
        topic: str | None,
        units_a_second: float,
        scan: _Scan,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[TopicState, Misplaced]]:
        number = isinstance(units_a_second, int | float) and not isinstance(units_a_second, bool)
        if not number or not units_a_second > 0:
            raise InvalidInput("units_a_second", "a number over 0")

        states = {state.topic.name: state for state in self.tables.topics.all()}
        if topic is not None and topic not in states:
            raise UnknownTopic(topic)

        table = RepairTable(self.tables)
        clock, position = self._context.clock, None
        while True:
            started = clock.now()
            items, position, units = table.scan_page(position)
            scan.items += len(items)
            # the oldest first: moved messages of a key keep their order
            messages = sorted(_messages(items), key=lambda stored: stored.ref.id)
            for stored in messages:
                state = states.get(stored.ref.topic)
                if state is None or topic not in (None, stored.ref.topic):
                    continue
                right = belongs(stored.message, stored.ref, state.epochs)
                if right is not None:
                    yield state, Misplaced(stored.ref, right)

            if progress is not None:
                progress(scan.items)

            if position is None:
                return
            clock.sleep(max(0.0, units / units_a_second - (clock.now() - started)))


def _messages(items: list[dict[str, object]]) -> Iterator[StoredMessage]:
    for item in items:
        if is_shard_row(item):
            continue
        try:
            stored = read_message(item)
        except Unreadable:
            continue
        if stored.gone is None:
            yield stored
