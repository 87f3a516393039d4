"""The store of delivery: `fairbox.dispatch.ports.Store` over DynamoDB."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.codec.keys import key_of, message_key
from fairbox.codec.messages import read_message
from fairbox.dynamodb.deferred_keys import DeferredKeyTable
from fairbox.dynamodb.hints import HintRows
from fairbox.dynamodb.key_claims import KeyClaimTable
from fairbox.dynamodb.recounts import RecountTable
from fairbox.dynamodb.topic_cache import DispatcherTopics
from fairbox.errors import NewerVersion, NotConfigured, Unavailable, Unreadable
from fairbox.model.clock import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fairbox.dynamodb.lanes import ShardPage
    from fairbox.dynamodb.tables import Tables
    from fairbox.model.bodies import BodyStore
    from fairbox.model.busiest_topics import BusiestTopics
    from fairbox.model.deferred_keys import DeferredKeys
    from fairbox.model.messages import MessageRef
    from fairbox.model.recounts import LaneMarks
    from fairbox.model.stored_messages import Offloaded, OpenLane, Saved, ShardRow, StoredMessage
    from fairbox.model.subscription_status import SubscriptionStatus
    from fairbox.model.topics import TopicState
    from fairbox.model.walk_positions import Places, WalkPosition

_HOUR_MS: Final = 3_600_000


class DynamoStore:
    """Delivery's view of the outbox and deliveries tables.

    Args:
        tables: the tables.
        body_store: where offloaded bodies lie; None: nowhere.
    """

    def __init__(self, tables: Tables, body_store: BodyStore | None = None) -> None:
        self._tables = tables
        self._topics = DispatcherTopics(tables)
        self._bodies = body_store
        self._deferred = DeferredKeyTable(tables)

    def topic(self, name: str) -> TopicState | None:
        """Return the topic; at most as old as the last `refresh`."""
        return self._topics.get(name)

    def refresh(self) -> None:
        """Compare the version of the topics when the copy is over 1 s old (1 RRU)."""
        self._topics.refresh()

    @property
    def announced(self) -> int:
        """The count of circuits opened and pauses changed up to the last refresh."""
        return self._topics.announced

    @property
    def busiest(self) -> BusiestTopics:
        """The busiest topics up to the last refresh."""
        return self._topics.busiest

    @property
    def topics_version(self) -> int:
        """The count of changes of topics and subscriptions up to the last refresh."""
        return self._topics.version

    def topic_names(self) -> list[str]:
        """Return the names of all topics (1 RRU for 4 KB of their rows)."""
        return [state.topic.name for state in self._tables.topics.all()]

    def recent_deliveries(self) -> Mapping[str, int]:
        """Return a sample of the last hour's deliveries, by topic (1,600 RRU at most)."""
        now = milliseconds(self._tables.calls.clock)
        return self._tables.ledger.sample(now - _HOUR_MS, now)

    def write_busiest(self, busiest: BusiestTopics) -> None:
        """Write the list of the busiest topics (4 WRU at most)."""
        self._tables.topics.write_busiest(busiest)

    def announced_of(self, topic: str) -> int:
        """Return a number that differs once a circuit of the topic opened or a pause changed."""
        return self._topics.stamp(topic)

    def statuses(self, topic: str) -> tuple[Mapping[str, SubscriptionStatus], int]:
        """Return how a topic's subscriptions stood when it was read, and `announced_of` then."""
        state, stamp = self._topics.with_stamp(topic)
        return ({} if state is None else state.statuses), stamp

    def read_statuses(
        self, topic: str, subscriptions: Iterable[str]
    ) -> dict[str, SubscriptionStatus]:
        """Return how these subscriptions stand now (1 RRU each)."""
        return self._tables.circuits.read(topic, subscriptions)

    def write_status(
        self,
        topic: str,
        name: str,
        after: SubscriptionStatus,
        before: SubscriptionStatus,
        *,
        announce: bool,
    ) -> SubscriptionStatus | None:
        """Write how a subscription stands where it stands as in `before`; return how it does."""
        return self._tables.circuits.write(topic, name, after, before, announce=announce)

    def spent(self, topic: str, name: str) -> int:
        """Return until when a rate was used up of late (ms; 0.5 RRU)."""
        return self._tables.circuits.spent(topic, name)

    def spend(self, topic: str, name: str, until: int, before: int) -> int | None:
        """Write until when a rate is used up (ms) where it is as in `before`; None: written."""
        return self._tables.circuits.spend(topic, name, until, before)

    def fetch_body(self, stored: StoredMessage) -> StoredMessage:
        """Return the message with its offloaded body in place.

        Raises:
            NotConfigured: there is no body store.
            Unavailable: the body could not be read.
        """
        if stored.offloaded is None:
            return stored
        if self._bodies is None:
            raise NotConfigured("FAIRBOX_BODIES_BUCKET")
        body = self._bodies.get(stored.offloaded.bucket, stored.offloaded.key)
        return replace(stored, message=replace(stored.message, body=body))

    def read(
        self, refs: Sequence[MessageRef], *, pass_newer: bool = False
    ) -> tuple[list[StoredMessage], list[Mapping[str, object]]]:
        """Return what of these lies in the outbox (consistent), and what is unreadable.

        Raises:
            NewerVersion: only a newer release can read one; with `pass_newer` it is passed over.
        """
        messages: list[StoredMessage] = []
        unreadable: list[Mapping[str, object]] = []
        for item in self._tables.lanes.items(refs):
            try:
                messages.append(read_message(item))
            except NewerVersion:
                if not pass_newer:
                    raise
            except Unreadable:
                unreadable.append(item)
        return messages, unreadable

    def read_lane(
        self,
        lane: OpenLane,
        topic: str,
        epoch: int,
        shard: int,
        *,
        limit: int,
        after: str | None = None,
        until_due: int | None = None,
        upto: str | None = None,
        consistent: bool = True,
    ) -> ShardPage:
        """Return a page of a lane; `until_due` bounds lane `later`, `upto` the sort key."""
        return self._tables.lanes.page(
            lane,
            topic,
            epoch,
            shard,
            limit=limit,
            after=after,
            until_due=until_due,
            upto=upto,
            consistent=consistent,
        )

    def delete(self, messages: Sequence[StoredMessage]) -> None:
        """Delete the items, 25 a call.

        Raises:
            Unavailable: some stayed; what was sent will be sent again.
        """
        left = self._tables.lanes.delete([message_key(m.ref, m.lane) for m in messages])
        if left:
            raise Unavailable("batch_write_item", f"{len(left)} messages were not deleted")

    def save_state(self, stored: StoredMessage, before: StoredMessage) -> Saved:
        """Write pending, states, gone and reason where they are as in `before`."""
        return self._tables.lanes.save_state(stored, before)

    def delete_unchanged(self, before: StoredMessage) -> Saved:
        """Delete a message whose state is as in `before`."""
        return self._tables.lanes.delete_unchanged(before)

    def delete_marked(self, stored: StoredMessage) -> None:
        """Delete a message that carries `gone`; nothing where it is gone or was redriven."""
        self._tables.lanes.delete_marked(stored)

    def bury(self, stored: StoredMessage, died: frozenset[str]) -> None:
        """Move a message, which the caller has just marked as dead, into lane `dead`."""
        self._tables.burials.bury(stored, died)

    def finish(self, stored: StoredMessage, died: frozenset[str]) -> None:
        """Move a message that is marked as dead; do nothing where it has been moved."""
        self._tables.burials.finish(stored, died)

    def bury_partly(
        self,
        stored: StoredMessage,
        before: StoredMessage,
        died: frozenset[str],
        letter: StoredMessage | None = None,
    ) -> Saved:
        """Bury for these subscriptions and save the state, in one transaction."""
        return self._tables.burials.bury_partly(stored, before, died, letter or stored)

    def bury_raw(self, item: Mapping[str, object], reason: str) -> None:
        """Put an unreadable item into lane `dead` as it is, and delete it from the outbox."""
        self._tables.dead.bury_raw(item, reason)
        self._tables.lanes.delete([key_of(item)])

    def postpone(self, row: ShardRow, next_check: int, backoff: int) -> bool:
        """Postpone the next check if it is as in `row`; return whether it was."""
        return self._tables.rows.postpone(row, next_check, backoff)

    def walk_position(self, shard: tuple[str, int, int]) -> WalkPosition:
        """Return where walks of a shard go on, eventually consistent (0.5 RRU)."""
        return self._tables.walks.read(shard)

    def move_walk(
        self,
        shard: tuple[str, int, int],
        before: WalkPosition,
        *,
        shared: tuple[Places, str] | None = None,
        apart: Mapping[str, Places | None] | None = None,
    ) -> WalkPosition | None:
        """Write where walks go on if it is as in `before` (1 WRU); return others' if not."""
        return self._tables.walks.move(shard, before, shared=shared, apart=apart)

    def settle_shard(self, topic: str, epoch: int, shard: int) -> None:
        """Write into a shard's row that no older shard lists its keys, for good (1 WRU)."""
        self._tables.rows.settle(topic, epoch, shard)

    def deferred(self, shard: tuple[str, int, int]) -> tuple[ShardRow | None, DeferredKeys]:
        """Return a shard row and what visits hold back of it (consistent, 1 RRU for 4 KB)."""
        return self._deferred.get(shard)

    def write_deferred(
        self, shard: tuple[str, int, int], deferred: DeferredKeys, version: int
    ) -> DeferredKeys | None:
        """Write what visits hold back where the version is this one; return others' if not."""
        return self._deferred.write(shard, deferred, version)

    def outstanding_or_dead(
        self, ref: MessageRef
    ) -> tuple[StoredMessage | None, StoredMessage | None]:
        """Return a message as it lies in its lane and as a dead letter, both at one time."""
        return self._deferred.outstanding_or_dead(ref)

    def wake_receives(self, refs: Sequence[MessageRef], *, ordered: bool) -> None:
        """Let receives of pulled topics find messages that lie before where they begin."""
        if ordered:
            claims = KeyClaimTable(self._tables.calls, self._tables.outbox)
            for shard, first in _firsts(refs).items():
                claims.lower_after(shard, first)
        else:
            HintRows(self._tables.calls, self._tables.outbox).wake(refs)

    def due_shards(self, *, ahead_ms: int = 0) -> Iterator[ShardRow]:
        """Yield the shard rows whose check is due, or will be so soon, from the index."""
        return self._tables.rows.listed(milliseconds(self._tables.calls.clock) + ahead_ms)

    def write_ledger(self, items: Sequence[dict[str, Any]]) -> None:
        """Write ledger rows, 25 a call; a repetition overwrites.

        Raises:
            Unavailable: some stayed unwritten; all may be written again.
        """
        requests = [{"PutRequest": {"Item": item}} for item in items]
        left = self._tables.calls.batch_write(self._tables.deliveries, requests)
        if left:
            raise Unavailable("batch_write_item", f"{len(left)} ledger rows were not written")

    def shard_rows(self, shards: Sequence[tuple[str, int, int]]) -> list[ShardRow]:
        """Return the shard rows that are there (consistent)."""
        return self._tables.rows.get_many(shards)

    def change_row(self, row: ShardRow, before: ShardRow) -> bool:
        """Write what differs where the row is as `before`; return whether it was."""
        return self._tables.rows.change(row, before)

    def ask_recount(self, shard: tuple[str, int, int]) -> None:
        """Ask for a recount of a shard whose row is in doubt (1 WRU)."""
        RecountTable(self._tables).ask(shard)

    def log_changes(
        self,
        row: ShardRow,
        lane: Literal["ready", "later"],
        marks: LaneMarks,
        *,
        first: str,
        last: str,
    ) -> None:
        """Keep what changed in a lane for the row's recount (1 WRU for 110 keys)."""
        RecountTable(self._tables).log(row, lane, marks, first=first, last=last)

    def expire_body(self, offloaded: Offloaded) -> None:
        """Let an offloaded body expire after its retention."""
        if self._bodies is not None:
            self._bodies.expire(offloaded.bucket, offloaded.key)


def _firsts(refs: Sequence[MessageRef]) -> dict[tuple[str, int, int], str]:
    """Return the smallest id by shard."""
    firsts: dict[tuple[str, int, int], str] = {}
    for ref in refs:
        shard = (ref.topic, ref.epoch, ref.shard)
        firsts[shard] = min(ref.id, firsts.get(shard, ref.id))
    return firsts
