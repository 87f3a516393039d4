"""Watches what consumers are given and answered; each breach is a sentence."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

from fairbox.model.receipts import Receipt
from fairbox.tables.key_claims import read_claims
from fairbox.tables.keys import message_key, shard_key
from fairbox.tables.stored_messages import REDRIVEN
from fairbox.testing.application import OUTBOX

if TYPE_CHECKING:
    from fairbox import Message
    from fairbox.testing.application import MemoryApplication


@dataclass(eq=False, slots=True)
class Holding:
    """A message as a consumer was given it.

    Attributes:
        topic, message, receipt: as received.
        until: milliseconds since 1970 UTC until which nobody else may get it.
        over: whether its consumer has settled it or given it back, or has tried to.
        told: in which order consumers were told; 0: not yet.
        slept: whether its time was over when its consumer was told: others may have it since, who
            were told before.
        redriven: whether the message was dead before.
    """

    topic: str
    message: Message
    receipt: str
    until: int
    over: bool = False
    told: int = 0
    slept: bool = False
    redriven: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Topic and message id."""
        return self.topic, str(self.message.id)

    @property
    def key(self) -> tuple[str, str]:
        """Topic and partition key."""
        return self.topic, str(self.message.partition_key)

    @property
    def epoch(self) -> int:
        """The epoch of the topic in which the message lies."""
        return Receipt.parse(self.receipt).ref.epoch


class ConsumerChecker:
    """Knows who holds what, and what was acknowledged.

    Args:
        app: whose tables hold the messages.
        ordered: topics of which one message of a key is held at a time.
        repeated: topics that may be given a message again after it was acknowledged: those that
            another topic feeds, at least once.

    Attributes:
        breaches: of what may never happen at any time.
        taken: by place, acknowledged for sure.
        tried: by place, acknowledged perhaps.
    """

    def __init__(
        self, app: MemoryApplication, *, ordered: tuple[str, ...], repeated: tuple[str, ...]
    ) -> None:
        self._app = app
        self._ordered = ordered
        self._repeated = repeated
        self._last: dict[tuple[str, str], Holding] = {}  # by place
        self._of_key: dict[tuple[str, str], Holding] = {}
        self._firsts: dict[tuple[str, str], list[str]] = defaultdict(list)  # ids by key
        self._told = count(1)
        self.breaches: list[str] = []
        self.taken: set[tuple[str, str]] = set()
        self.tried: set[tuple[str, str]] = set()

    def received(self, holding: Holding, now: int) -> None:
        """Note what was received at `now` (ms, by the consumer's clock)."""
        holding.told = next(self._told)
        if now >= holding.until:
            holding.over = holding.slept = True
            return
        if holding.place in self.taken and holding.topic not in self._repeated:
            self.breaches.append(f"received after its ack: {holding.place}")
        before = self._last.get(holding.place)
        if before is not None and not before.over and now < before.until:
            self.breaches.append(f"two holders: {holding.place}, until {before.until - now} ms on")
        if holding.topic in self._ordered:
            self._received_in_order(holding, now, first=before is None)
        self._last[holding.place] = holding

    def _received_in_order(self, holding: Holding, now: int, *, first: bool) -> None:
        item, _ = self.state(holding)
        holding.redriven = item is not None and REDRIVEN in item
        other = self._of_key.get(holding.key)
        busy = other is not None and not other.over and now < other.until
        if (
            other is not None
            and busy
            and other.place != holding.place
            and not _apart(holding, other)
        ):
            self.breaches.append(f"two of a key: {other.place} and {holding.place}")
        if first:
            self._firsts[holding.key].append(holding.place[1])
        self._of_key[holding.key] = holding

    def holds(self, holding: Holding, now: int) -> bool:
        """Whether a receipt is good, for all that the consumers know."""
        mine = self._last.get(holding.place) is holding
        return mine and not holding.over and now < holding.until

    def followed(self, holding: Holding) -> bool:
        """Whether somebody received the message after this receipt, for sure."""
        last = self._last.get(holding.place)
        if last is None or last is holding or last.receipt == holding.receipt:
            return False
        return not holding.slept or last.told > holding.told

    def trying(self, holding: Holding) -> None:
        """Note that a receipt is shown to acknowledge its message."""
        holding.over = True
        self.tried.add(holding.place)

    def giving_back(self, holding: Holding) -> None:
        """Note that a message is given back or buried."""
        holding.over = True

    def extended(self, holding: Holding, until: int) -> None:
        """Note that a message is held until then (ms) at least."""
        holding.until = until

    def acked(self, holding: Holding, now: int) -> None:
        """Note that a message that was there is acknowledged, by a call that ended at `now` (ms).

        On unordered topics a call that stood still over the time-out cannot tell whether it was
        itself that deleted what is gone: it was acknowledged perhaps, or by another, or it died.
        """
        if holding.topic not in self._ordered and now >= holding.until:
            return
        self.taken.add(holding.place)
        if self.followed(holding) and holding.topic not in self._repeated:
            self.breaches.append(f"acked by a receipt that was followed: {holding.place}")

    def refused(self, holding: Holding, now: int, *, good: bool) -> None:
        """Note that a receipt was called stale."""
        if good and now < holding.until and self._last.get(holding.place) is holding:
            self.breaches.append(f"a good receipt was refused: {holding.place}")

    def lies(self, holding: Holding) -> bool:
        """Whether the message is in the outbox."""
        return bool(self.state(holding)[0])

    def state(self, holding: Holding) -> tuple[Any, Any]:
        """Return the message as it lies there, and what its shard's row holds of it."""
        receipt = Receipt.parse(holding.receipt)
        ref = receipt.ref
        key = message_key(ref, "later" if receipt.place == "later" else "ready")
        item = self._app.engine.get_item(TableName=OUTBOX, Key=key).get("Item")
        row = self._app.engine.get_item(
            TableName=OUTBOX, Key=shard_key(ref.topic, ref.epoch, ref.shard)
        ).get("Item")
        return item, read_claims(row).entry(ref.id) if row else None

    def used_late(
        self, holding: Holding, before: tuple[Any, Any], now: int, *, answered: bool
    ) -> None:
        """Note what a receipt did at `now` (ms) that another had followed."""
        if self.state(holding) != before:
            self.breaches.append(f"changed by a receipt that was followed: {holding.place}")
        elif answered and before[0] is not None:
            self.breaches.append(f"a followed receipt was taken for good: {holding.place}")
        elif answered and Receipt.parse(holding.receipt).until <= now:
            self.breaches.append(f"an expired receipt was taken for good: {holding.place}")

    def disorder(self, excused: set[str]) -> list[str]:
        """Return first receives of a key that were not in the order of ids.

        Args:
            excused: ids that were dead once: their keys went on without them.
        """
        found = []
        for key, ids in self._firsts.items():
            told = [i for i in ids if i not in excused]
            found += [
                f"received out of order: {later} of {key} after {earlier}"
                for earlier, later in pairwise(told)
                if later < earlier
            ]
        return found


def _apart(one: Holding, other: Holding) -> bool:
    """Whether the older of two messages was redriven after a resize, where no claim is shared."""
    older, newer = sorted((one, other), key=lambda holding: holding.epoch)
    return older.redriven and older.epoch < newer.epoch
