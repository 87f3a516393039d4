"""The batches table: consistent reads, and writes on the version as read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from botocore.exceptions import ClientError

from fairbox.errors import Throttled, TransactionCancelled, Unavailable
from fairbox.tables import batch_records as codec
from fairbox.tables.batch_values import (
    Child,
    FailedItems,
    Leaf,
    LeafCounts,
    LeafKey,
    ListPlace,
    Metadata,
    Node,
    NodeKey,
    Request,
    Root,
    StillWriting,
)
from fairbox.tables.calls import ConditionFailed, Rows
from fairbox.tables.keys import PK, SK, Key
from fairbox.tables.stored_messages import number
from fairbox.tables.write_expressions import condition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from fairbox.model.ids import ItemId
    from fairbox.tables.batch_values import Change, Record

_PAGE: Final = 100
_FEW_PAGES: Final = 8
_READERS: Final = 4


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why changes were not written.

    Attributes:
        records: for each change the record that stands in its way, as far as known.
        actions: for each action its code and the old image of its item; none when another
            transaction was under way.
    """

    records: Sequence[Record | None]
    actions: Sequence[tuple[str, Mapping[str, Any]]] = ()


class BatchTable(Rows):
    """Reads are consistent; a write is one call, whole or not at all."""

    def _read(self, keys: Sequence[Key]) -> list[Any]:
        """Return the records of these keys that are there."""
        if len(keys) == 1:
            item = self._calls.get(self._table, keys[0])
            return [] if item is None else codec.read_records([item])
        return codec.read_records(self._calls.batch_get(self._table, keys)) if keys else []

    def root(self, batch: str) -> Root | None:
        """Return a root."""
        found: list[Root] = self._read([codec.root_key(batch)])
        return found[0] if found else None

    def roots(self, batches: Collection[str]) -> list[Root]:
        """Return the roots that are there."""
        return self._read([codec.root_key(batch) for batch in batches])

    def leaves(self, keys: Collection[LeafKey]) -> dict[LeafKey, Leaf]:
        """Return the leaves that are there."""
        found: list[Leaf] = self._read(codec.keys_of(keys))
        return {LeafKey(leaf.batch, leaf.group): leaf for leaf in found}

    def nodes(self, keys: Collection[NodeKey]) -> dict[NodeKey, Node]:
        """Return the nodes that are there."""
        found: list[Node] = self._read(codec.keys_of(keys))
        return {NodeKey(node.batch, node.node): node for node in found}

    def failed(self, keys: Collection[LeafKey]) -> dict[LeafKey, FailedItems]:
        """Return the failed items of these groups."""
        found: list[FailedItems] = self._read(codec.keys_of(keys, failed=True))
        return {LeafKey(items.batch, items.group): items for items in found}

    def child(self, item: ItemId) -> Child | None:
        """Return the nested batch of an item, or the last one that it had."""
        found: list[Child] = self._read([codec.child_key(item.batch, item.group, item.index)])
        return found[0] if found else None

    def requests(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], Request]:
        """Return the requests that are there, by batch and digest."""
        found: list[Request] = self._read([codec.request_key(*key) for key in keys])
        return {(request.batch, request.digest): request for request in found}

    def counts(self, keys: Collection[LeafKey]) -> list[LeafCounts]:
        """Return the counts of the leaves that are there, 100 a call, bits left out.

        Many calls are made four at once.
        """
        waiting = codec.keys_of(keys)
        pages = [waiting[start : start + _PAGE] for start in range(0, len(waiting), _PAGE)]
        if len(pages) < _FEW_PAGES:
            return [count for page in pages for count in self._counts(page)]

        def read(context: Context, page: list[Key]) -> list[LeafCounts]:
            return context.run(self._counts_in_time, page)

        # how long may be tried again (`tries_until`) holds in these threads too
        contexts = [copy_context() for _ in pages]
        with ThreadPoolExecutor(_READERS) as pool:
            return [count for counts in pool.map(read, contexts, pages) for count in counts]

    def _counts_in_time(self, page: list[Key]) -> list[LeafCounts]:
        # a call has its first try in any case: so would each page that waited for a thread
        if self._calls.out_of_time:
            raise Throttled("batch_get_item")
        return self._counts(page)

    def _counts(self, page: list[Key]) -> list[LeafCounts]:
        attributes = (codec.COUNT, codec.FAILED, codec.LEAF_SIZE)
        items = self._calls.batch_get(self._table, page, only=attributes)
        return [LeafCounts(*(int(item[name]["N"]) for name in attributes)) for item in items]

    def requests_of(self, batch: str) -> list[Request]:
        """Return all requests of a batch."""
        prefix = codec.REQUEST_PREFIX
        items = self._calls.partition(self._table, batch, "begins_with(#sk, :add)", add=prefix)
        return cast("list[Request]", codec.read_records(items))

    def metadata(self, batch: str) -> Mapping[str, object]:
        """Return a batch's metadata; empty when it has none."""
        found: list[Metadata] = self._read([codec.meta_key(batch)])
        return found[0].values if found else {}

    def write(
        self, changes: Sequence[Change | StillWriting], actions: Sequence[dict[str, Any]] = ()
    ) -> Refusal | None:
        """Write all or nothing; return None when it is written, else the refusal.

        One change alone is a plain write, at half the units of a transaction.
        """
        made = [self._action(change) for change in changes]

        try:
            if len(made) == 1 and not actions:
                self._calls.call("put_item", **made[0]["Put"])
            else:
                self._calls.transact([*made, *actions])
        except ConditionFailed as failed:
            return Refusal([_record(failed.old)])
        except TransactionCancelled as cancelled:
            # reasons are in the order of the actions: those of the changes come first
            reasons = cancelled.reasons
            records = [_record(old) for _, old in reasons[: len(made)]]
            return Refusal(records, reasons[len(made) :])
        except Unavailable as error:
            # transactions of others were in the way to the last try: no old image comes back
            if not _conflict(error):
                raise
            return Refusal([None] * len(made))
        return None

    def _action(self, change: Change | StillWriting) -> dict[str, Any]:
        if isinstance(change, StillWriting):
            request = change.request
            check = {"TableName": self._table} | _still_writing()
            check["Key"] = codec.request_key(request.batch, request.digest)
            return {"ConditionCheck": check}

        put: dict[str, Any] = {"TableName": self._table, "Item": codec.item_of(change.new)}
        if not change.plain:
            put |= self.condition(change) | {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        return {"Put": put}

    def condition(self, change: Change) -> dict[str, Any]:
        """Return the condition under which a change is written."""
        match change.old:
            case None:
                return condition("pk", PK, None)
            # a request has no version: it changes once, from writing to done
            case Request():
                return _still_writing()
            # nor has this record: it may be replaced while it names the same nested batch
            case Child():
                return condition("ch", codec.CHILD, {"S": change.old.child})
        return condition("v", codec.VERSION, number(change.old.version))

    def delete(
        self,
        batch: str,
        *,
        requests: Collection[str] = (),
        groups: Collection[int] = (),
        failed: Collection[int] = (),
        nodes: Collection[int] = (),
        metadata: bool = False,
    ) -> None:
        """Delete items of an ended batch, 25 a call; `failed`: the failed items of these groups.

        Raises:
            Throttled: some were left; call again.
        """
        keys = [codec.request_key(batch, digest) for digest in requests]
        keys += [codec.leaf_key(batch, group) for group in groups]
        keys += [codec.failed_key(batch, group) for group in failed]
        keys += [codec.node_key(batch, node) for node in nodes]
        keys += [codec.meta_key(batch)] if metadata else []

        deletes = [{"DeleteRequest": {"Key": key}} for key in keys]
        if deletes and self._calls.batch_write(self._table, deletes):
            raise Throttled("batch_write_item")

    def listed(self, state: str, until: int | None = None) -> Iterator[str]:
        """Yield batch ids in a state, bucket by bucket, the earliest check first."""
        for bucket in range(codec.BUCKETS):
            for place in self._bucket(state, bucket, until=until):
                yield place.batch

    def places(self, state: str, *, after: ListPlace | None, page: int) -> Iterator[ListPlace]:
        """Yield batches in a state with their places, behind one of these; `page` a call."""
        for bucket in range(0 if after is None else after.bucket, codec.BUCKETS):
            more: dict[str, Any] = {"Limit": page}
            if after is not None and after.bucket == bucket:
                more["ExclusiveStartKey"] = codec.list_key(state, after)
            yield from self._bucket(state, bucket, **more)

    def _bucket(
        self, state: str, bucket: int, *, until: int | None = None, **more: Any
    ) -> Iterator[ListPlace]:
        condition, values = "#h = :h", {":h": {"S": codec.bucket_value(state, bucket)}}
        names = {"#h": codec.BUCKET}
        if until is not None:
            condition += " AND #x <= :x"
            values[":x"] = {"N": str(until)}
            names["#x"] = codec.NEXT_CHECK

        for page in self._calls.pages(
            "query",
            TableName=self._table,
            IndexName=codec.OPEN_BATCHES_INDEX,
            KeyConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
            **more,
        ):
            for item in page["Items"]:
                yield ListPlace(bucket, int(item[codec.NEXT_CHECK]["N"]), item[PK]["S"])


def _still_writing() -> dict[str, Any]:
    return condition("st", codec.STATE, {"S": codec.WRITING})


def _record(item: Mapping[str, Any]) -> Record | None:
    if not item or SK not in item:
        return None
    record = codec.read_record(item)
    return None if isinstance(record, Metadata) else record


def _conflict(error: Unavailable) -> bool:
    cause = error.__cause__
    if not isinstance(cause, ClientError):
        return False
    code = cause.response["Error"]["Code"]
    conflicts = ("TransactionCanceledException", "TransactionConflictException")
    # a malformed action cancels a transaction too, and would at each further try
    return code in conflicts and error.retry != "never"
