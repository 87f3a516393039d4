"""Erasure of the messages of a partition key: outstanding and waiting ones, and dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.errors import InvalidInput, MessagesClaimed, MessagesNotFound
from fairbox.model.messages import MessageRef, OpenLane, check_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.client.outbox import Outbox
    from fairbox.tables.dead_letters import DeadLetter

_LANES: Final[tuple[OpenLane, ...]] = ("ready", "later")


@dataclass(frozen=True, slots=True)
class ErasureResult:
    """The result of an erasure; of a dry run, the expected result.

    Attributes:
        cancelled: the messages that were outstanding or waiting.
        purged: names of the dead letters, `topic/epoch/shard/id`.
        claimed: messages that consumers hold: they stay; call again after their time-out.
        left: dead letters that stay: nobody can read their keys, or others kept changing them.
        dry_run: nothing was changed.
    """

    cancelled: tuple[MessageRef, ...] = ()
    purged: tuple[str, ...] = ()
    claimed: tuple[MessageRef, ...] = ()
    left: tuple[str, ...] = ()
    dry_run: bool = False


class KeyErasure:
    """Erases the messages and dead letters of a partition key from an outbox.

    Args:
        outbox: the outbox.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def erase(
        self,
        partition_key: str,
        *,
        topic: str | None = None,
        reason: str = "erased",
        dry_run: bool = False,
    ) -> ErasureResult:
        """Cancel a key's outstanding and waiting messages, and purge its dead letters.

        It reads whole topics (1 RRU for 4 KB), because a message may lie in a shard that is not its
        key's: after a resize, or if a producer misplaced it. Each message costs as much as `cancel`
        and `purge_dead`. Messages of the key that are published in the meantime may stay: stop
        them first. The ledger has no keys and no bodies, so nothing in it is changed. Offloaded
        bodies expire as after a delivery. The call may be repeated.

        Args:
            partition_key: as the messages were published.
            topic: the topic; None: all.
            reason: at most 256 bytes; the archive keeps it, so it should name nobody.
            dry_run: change nothing, and return the messages that would be erased.

        Raises:
            InvalidInput: the key is empty, or the reason too long; nothing is erased.
            UnknownTopic: there is no such topic.
            Throttled, Unavailable: call again; erased messages stay erased.
        """
        if not partition_key:
            raise InvalidInput("partition_key", "a partition key that is not empty")
        check_text("reason", reason)

        if topic is None:
            names = [state.topic.name for state in self._outbox.topics()]
        else:
            names = [self._outbox.topic(topic).topic.name]

        cancelled: list[MessageRef] = []
        claimed: list[MessageRef] = []
        purged: list[str] = []
        left: list[str] = []

        def of_key(letter: DeadLetter) -> bool:
            if letter.message is None:
                # it may be the key's: the caller is told which ones nobody can read
                left.append(letter.name)
                return False
            return letter.message.partition_key == partition_key

        for name in names:
            for ref in self._refs_of_key(name, partition_key):
                stays = self._stays(ref, reason, dry_run=dry_run)
                if stays is not None:
                    (claimed if stays else cancelled).append(ref)

            # after the others: one of them may have died until then
            found = self._outbox.purge_found(name, where=of_key, reason=reason, dry_run=dry_run)
            purged += found.names
            left += found.left

        return ErasureResult(
            tuple(cancelled), tuple(purged), tuple(claimed), tuple(left), dry_run=dry_run
        )

    def _stays(self, ref: MessageRef, reason: str, *, dry_run: bool) -> bool | None:
        """Cancel a message; return whether a consumer holds it, None: it is not outstanding."""
        try:
            if not dry_run:
                self._outbox.cancel([ref], reason=reason)
        except MessagesNotFound:
            return None  # it was delivered, or died, in the meantime
        except MessagesClaimed:
            return True
        return False

    def _refs_of_key(self, topic: str, partition_key: str) -> Iterator[MessageRef]:
        for lane in _LANES:
            for stored in self._outbox.stored(lane, topic):
                if stored.message.partition_key == partition_key:
                    yield stored.ref
