"""The status of subscriptions in their rows: read, changed by compare-and-set, announced.

A change that others must not miss (a circuit opens, a pause begins or ends) counts the
announcements up in its own transaction and names its topic: they stand in the row that every
invocation of a dispatcher reads anyway, so that only who has a copy of this topic reads it again (2
WRU for a change, 4 with its announcement; nothing while nothing changes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.codec import attributes as attr
from fairbox.codec.keys import subscription_key
from fairbox.codec.messages import number
from fairbox.codec.subscription_status import read_spent, read_status, status_value
from fairbox.dynamodb.calls import ConditionFailed
from fairbox.dynamodb.topic_changes import change_update
from fairbox.errors import TransactionCancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fairbox.dynamodb.calls import Calls
    from fairbox.model.subscription_status import SubscriptionStatus
    from fairbox.model.topic_changes import TopicChanges


class CircuitRows:
    """Reads and changes how subscriptions stand.

    Args:
        calls: makes the calls.
        table: the outbox table.
        changes: reads the latest changes of topics, for the slot of an announcement.
    """

    def __init__(self, calls: Calls, table: str, changes: Callable[[], TopicChanges]) -> None:
        self._calls = calls
        self._table = table
        self._changes = changes

    def read(self, topic: str, subscriptions: Iterable[str]) -> dict[str, SubscriptionStatus]:
        """Return how these subscriptions of a topic stand (consistent, 1 RRU each)."""
        keys = [subscription_key(topic, name) for name in subscriptions]
        found = self._calls.batch_get(self._table, keys)
        return {item[attr.SK]["S"].rpartition("#")[2]: read_status(item) for item in found}

    def write(
        self,
        topic: str,
        name: str,
        after: SubscriptionStatus,
        before: SubscriptionStatus,
        *,
        announce: bool,
    ) -> SubscriptionStatus | None:
        """Write how a subscription stands where it stands as in `before`.

        Returns:
            The status now: `after`, or the one that somebody else wrote. None: it was removed.
        """
        update = self._update(topic, name, after, before)
        try:
            if announce:
                bump = change_update(self._table, attr.ANNOUNCED, topic, self._changes())
                actions = [{"Update": update}, {"Update": bump}]
                self._calls.call("transact_write_items", TransactItems=actions)
            else:
                self._calls.call("update_item", **update)
        except ConditionFailed as failed:
            old: Mapping[str, Any] = failed.old
        except TransactionCancelled as cancelled:
            old = cancelled.reasons[0][1]
        else:
            return after
        # ours, when the answer to an earlier try was lost: it reads as `after` does
        return read_status(old) if old else None

    def spent(self, topic: str, name: str) -> int:
        """Return until when the rate was used up of late (ms; eventually consistent, 0.5 RRU)."""
        answer = self._calls.call(
            "get_item",
            TableName=self._table,
            Key=subscription_key(topic, name),
            ProjectionExpression="#s",
            ExpressionAttributeNames={"#s": attr.SPENT},
        )
        return read_spent(answer.get("Item", {}))

    def spend(self, topic: str, name: str, until: int, before: int) -> int | None:
        """Write until when the rate is used up (ms) where it is as in `before` (1 WRU).

        Returns:
            None if it was written, or the time that somebody else wrote. That may be `until`: then
            the tokens are theirs, or ours if an answer was lost; nobody takes them twice.
        """
        unspent = "attribute_not_exists(#s)" if before == 0 else "#s = :was"
        try:
            self._calls.call(
                "update_item",
                TableName=self._table,
                Key=subscription_key(topic, name),
                UpdateExpression="SET #s = :s",
                ConditionExpression=f"attribute_exists(#d) AND {unspent}",
                ExpressionAttributeNames={"#s": attr.SPENT, "#d": attr.DESTINATION},
                ExpressionAttributeValues={
                    ":s": number(until),
                    **({} if before == 0 else {":was": number(before)}),
                },
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailed as failed:
            return read_spent(failed.old)
        return None

    def _update(
        self, topic: str, name: str, after: SubscriptionStatus, before: SubscriptionStatus
    ) -> dict[str, Any]:
        value = status_value(after)
        values = {":v": number(after.version)}
        if value is not None:
            values[":s"] = value
        unchanged = "attribute_not_exists(#v)"
        if before.version:
            unchanged = "#v = :was"
            values[":was"] = number(before.version)
        return {
            "TableName": self._table,
            "Key": subscription_key(topic, name),
            "UpdateExpression": f"SET #v = :v{'' if value is None else ', #s = :s'}"
            + (" REMOVE #s" if value is None else ""),
            "ConditionExpression": f"attribute_exists(#d) AND {unchanged}",
            "ExpressionAttributeNames": {
                "#v": attr.STANDING_VERSION,
                "#s": attr.STANDING,
                "#d": attr.DESTINATION,
            },
            "ExpressionAttributeValues": values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
