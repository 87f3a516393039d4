"""Messages that lie where they do not belong: found by a scan, and put right one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.client.context import OpenTables
from fairbox.codec.messages import read_message
from fairbox.codec.shards import is_shard_row
from fairbox.dynamodb.message_edits import Edits
from fairbox.dynamodb.repair_cursor import RepairTable
from fairbox.errors import InvalidInput, UnknownTopic, Unreadable
from fairbox.model.clock import milliseconds
from fairbox.model.placement import belongs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.topics import TopicState

UNITS_A_SECOND: Final = 200.0


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A message that lies where it does not belong.

    Attributes:
        ref: where it lies.
        belongs: where it belongs.
    """

    ref: MessageRef
    belongs: MessageRef


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """What a repair of misplaced messages did or, of a dry run, would do.

    Attributes:
        moved: the messages put right, by where they lay and where they lie now.
        left: those that were held, partly dead, or being changed: they are as they were.
        scanned: items read.
        dry_run: nothing was changed.
    """

    moved: tuple[Misplaced, ...] = ()
    left: tuple[MessageRef, ...] = ()
    scanned: int = 0
    dry_run: bool = False


@dataclass(slots=True)
class _Scan:
    """How many items a scan has read."""

    items: int = 0


class Misplacing(OpenTables):
    """Finds messages that lie where they do not belong, and puts them right."""

    def misplaced(
        self, topic: str | None = None, *, units_a_second: float = UNITS_A_SECOND
    ) -> Iterator[Misplaced]:
        """Yield the messages that lie where their topic's epochs do not put them, by a scan.

        None comes by itself; producers whose clock runs more than half a minute ahead during a
        resize make some, and so do programs that compute shards of their own. All but those whose
        epoch is not listed are delivered and received where they lie.

        Args:
            topic: the topic; None: all.
            units_a_second: the scan takes no more read units.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidInput: `units_a_second` is not what it takes.
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
        """Put misplaced messages where they belong, each in one transaction (5 WRU a KB).

        The oldest of a key go first, so that on ordered topics none passes another that is
        misplaced with it; followers that lie rightly may have gone before, and what is being sent
        meanwhile may be sent again. A message that moves has a new ref, and the archive says that
        the old one was cancelled, with where it went. It may be repeated.

        Args:
            topic: the topic; None: all.
            dry_run: change nothing, and say what would be moved.
            units_a_second: the scan takes no more read units.
            progress: is told how many items were read.

        Raises:
            As `misplaced` does.
            Throttled, Unavailable: call again.
        """
        edits = Edits(self.tables, self._bodies)
        moved: list[Misplaced] = []
        left: list[MessageRef] = []
        scan = _Scan()
        for state, found in self._misplaced(topic, units_a_second, scan, progress):
            ordered = state.topic.ordering == "key" and not state.pushed
            now = milliseconds(self._clock)
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
        position = None
        while True:
            started = self._clock.now()
            items, position, units = table.scan_page(position)
            scan.items += len(items)
            messages = sorted(_messages(items), key=lambda stored: stored.ref.id)
            for stored in messages:
                state = states.get(stored.ref.topic)
                if state is None or topic not in (None, stored.ref.topic):
                    continue
                right = belongs(stored, state)
                if right is not None:
                    yield state, Misplaced(stored.ref, right)
            if progress is not None:
                progress(scan.items)
            if position is None:
                return
            self._clock.sleep(max(0.0, units / units_a_second - (self._clock.now() - started)))


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
