"""The status of subscriptions in their rows: read, changed by compare-and-set, announced.

A change that others must not miss (a circuit opens, a pause begins or ends) counts the
announcements up in its own transaction and names its topic. They stand in the row that every
invocation of a dispatcher reads anyway, so that only a process with a copy of this topic reads it
again (2 WRU for a change, 4 with its announcement; nothing while nothing changes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from fairbox.errors import TransactionCancelled
from fairbox.model.topic_states import NEW, CircuitState, SubscriptionStatus
from fairbox.tables.calls import Calls, ConditionFailed, Rows
from fairbox.tables.keys import SK, subscription_key
from fairbox.tables.stored_messages import number
from fairbox.tables.topic_cache import ANNOUNCED, ChangesRow
from fairbox.tables.unreadable_items import NOT_OURS, reading
from fairbox.tables.write_expressions import WriteExpressions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


DESTINATION: Final = "ds"  # S, of a subscription row
STANDING: Final = "st"  # M of a subscription row: its circuit, its pause
STANDING_VERSION: Final = "sv"  # N of a subscription row, counts every change of `st`
SPENT: Final = "sp"  # N, ms, of a subscription row: until when its rate is used up

# inside a subscription's status
CIRCUIT: Final = "c"  # S
CIRCUIT_UNTIL: Final = "u"  # N, ms
CIRCUIT_FAILURES: Final = "n"  # N
CIRCUIT_SINCE: Final = "o"  # N, ms
CIRCUIT_REASON: Final = "r"  # S
PAUSED_AT: Final = "p"  # N, ms
PAUSE_REASON: Final = "w"  # S


def status_value(status: SubscriptionStatus) -> dict[str, Any] | None:
    """Return the attribute that holds a subscription's status; None: that of a new one."""
    fields: dict[str, Any] = {}
    if status.circuit != "closed":
        fields = {
            CIRCUIT: {"S": status.circuit},
            CIRCUIT_UNTIL: number(status.until),
            CIRCUIT_FAILURES: number(status.failures),
            CIRCUIT_SINCE: number(status.since),
            CIRCUIT_REASON: {"S": status.reason},
        }

    if status.paused_at is not None:
        fields[PAUSED_AT] = number(status.paused_at)
        fields[PAUSE_REASON] = {"S": status.pause_reason}

    return {"M": fields} if fields else None


def status_attributes(status: SubscriptionStatus) -> dict[str, Any]:
    """Return the attributes of a row that hold a subscription's status; a new one has none."""
    if not status.version:
        return {}
    value = status_value(status)
    stands = {} if value is None else {STANDING: value}
    return {STANDING_VERSION: number(status.version), **stands}


def read_status(item: Mapping[str, Any]) -> SubscriptionStatus:
    """Return a subscription's status from its row.

    Raises:
        Unreadable: `status_value` never writes such a row.
    """
    if STANDING_VERSION not in item:
        return NEW
    with reading(item, *NOT_OURS):
        version = int(item[STANDING_VERSION]["N"])
        fields = item.get(STANDING, {"M": {}})["M"]

        paused_at = fields.get(PAUSED_AT)
        pause_reason = fields.get(PAUSE_REASON, {"S": ""})["S"]
        paused = None if paused_at is None else int(paused_at["N"])

        if CIRCUIT not in fields:
            return SubscriptionStatus(paused_at=paused, pause_reason=pause_reason, version=version)

        circuit: CircuitState = fields[CIRCUIT]["S"]
        if circuit not in get_args(CircuitState):
            raise ValueError("no state of a circuit")

        return SubscriptionStatus(
            circuit=circuit,
            until=int(fields[CIRCUIT_UNTIL]["N"]),
            failures=int(fields[CIRCUIT_FAILURES]["N"]),
            since=int(fields[CIRCUIT_SINCE]["N"]),
            reason=fields[CIRCUIT_REASON]["S"],
            paused_at=paused,
            pause_reason=pause_reason,
            version=version,
        )


def read_spent(item: Mapping[str, Any]) -> int:
    """Return until when a subscription's rate is used up (ms); 0: it never was.

    Raises:
        Unreadable: the codec never writes such a row.
    """
    with reading(item, *NOT_OURS):
        return int(item.get(SPENT, {"N": "0"})["N"])


class CircuitRows(Rows):
    """Reads and changes how subscriptions stand; `changes` counts announcements."""

    def __init__(self, calls: Calls, table: str, changes: ChangesRow) -> None:
        super().__init__(calls, table)
        self._changes = changes

    def read(self, topic: str, subscriptions: Iterable[str]) -> dict[str, SubscriptionStatus]:
        """Return how these subscriptions of a topic stand (consistent, 1 RRU each)."""
        keys = [subscription_key(topic, name) for name in subscriptions]
        found = self._calls.batch_get(self._table, keys)
        return {item[SK]["S"].rpartition("#")[2]: read_status(item) for item in found}

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
                bump = self._changes.count(ANNOUNCED, topic)
                actions = [{"Update": update}, {"Update": bump}]
                self._calls.transact(actions)
            else:
                self._calls.call("update_item", **update)
        except ConditionFailed as failed:
            old: Mapping[str, Any] = failed.old
        except TransactionCancelled as cancelled:
            # the count of the change has no condition: only the row can have refused
            old = cancelled.reasons[0][1]
        else:
            return after

        # ours, when the answer to an earlier try was lost: it reads as `after` does
        return read_status(old) if old else None

    def spent(self, topic: str, name: str) -> int:
        """Return until when the rate was recently used up (ms; eventually consistent, 0.5 RRU)."""
        # an old value costs a refused `spend`, which brings the present one
        answer = self._calls.call(
            "get_item",
            TableName=self._table,
            Key=subscription_key(topic, name),
            ProjectionExpression="#s",
            ExpressionAttributeNames={"#s": SPENT},
        )
        return read_spent(answer.get("Item", {}))

    def spend(self, topic: str, name: str, until: int, before: int) -> int | None:
        """Write until when the rate is used up (ms) where it is as in `before` (1 WRU).

        Returns:
            None if it was written, or the time that somebody else wrote. That may be `until`: then
            the tokens are theirs, or ours if an answer was lost; nobody takes them twice.
        """
        write = WriteExpressions()
        write.put("s", SPENT, number(until))
        # an update makes a missing item: a removed subscription must not come back
        write.present("d", DESTINATION)
        write.same("s", SPENT, number(before) if before else None, "was")

        old = self._calls.refused(
            "update_item",
            TableName=self._table,
            Key=subscription_key(topic, name),
            **write.expressions,
            **write.bound,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        return None if old is None else read_spent(old)

    def _update(
        self, topic: str, name: str, after: SubscriptionStatus, before: SubscriptionStatus
    ) -> dict[str, Any]:
        write = WriteExpressions()
        write.put("v", STANDING_VERSION, number(after.version))
        write.put("s", STANDING, status_value(after))
        # an update makes a missing item: a removed subscription must not come back
        write.present("d", DESTINATION)
        # a subscription whose status has never changed has no version
        version = number(before.version) if before.version else None
        write.same("v", STANDING_VERSION, version, "was")

        return {
            "TableName": self._table,
            "Key": subscription_key(topic, name),
            **write.expressions,
            **write.bound,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
