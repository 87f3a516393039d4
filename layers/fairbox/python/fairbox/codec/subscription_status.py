"""The status of subscriptions in their rows: circuits and pauses to models and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from fairbox.codec import attributes as attr
from fairbox.codec.keys import key_text
from fairbox.codec.messages import number
from fairbox.errors import FairboxError, Unreadable
from fairbox.model.subscription_status import NEW, CircuitState, SubscriptionStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_OURS: Final = (
    FairboxError, LookupError, ValueError, TypeError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""The errors of a reader that meets an item which the codec did not write."""


def status_value(status: SubscriptionStatus) -> dict[str, Any] | None:
    """Return the attribute that holds a subscription's status; None: that of a new one."""
    fields: dict[str, Any] = {}
    if status.circuit != "closed":
        fields = {
            attr.CIRCUIT: {"S": status.circuit},
            attr.CIRCUIT_UNTIL: number(status.until),
            attr.CIRCUIT_FAILURES: number(status.failures),
            attr.CIRCUIT_SINCE: number(status.since),
            attr.CIRCUIT_REASON: {"S": status.reason},
        }
    if status.paused_at is not None:
        fields[attr.PAUSED_AT] = number(status.paused_at)
        fields[attr.PAUSE_REASON] = {"S": status.pause_reason}
    return {"M": fields} if fields else None


def status_attributes(status: SubscriptionStatus) -> dict[str, Any]:
    """Return the attributes of a row that hold a subscription's status; a new one has none."""
    if not status.version:
        return {}
    value = status_value(status)
    stands = {} if value is None else {attr.STANDING: value}
    return {attr.STANDING_VERSION: number(status.version), **stands}


def read_status(item: Mapping[str, Any]) -> SubscriptionStatus:
    """Return a subscription's status from its row.

    Raises:
        Unreadable: it is not what `status_value` writes.
    """
    if attr.STANDING_VERSION not in item:
        return NEW
    try:
        return _read(item)
    except NOT_OURS as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error


def _read(item: Mapping[str, Any]) -> SubscriptionStatus:
    version = int(item[attr.STANDING_VERSION]["N"])
    fields = item.get(attr.STANDING, {"M": {}})["M"]
    paused_at = fields.get(attr.PAUSED_AT)
    pause_reason = fields.get(attr.PAUSE_REASON, {"S": ""})["S"]
    paused = None if paused_at is None else int(paused_at["N"])
    if attr.CIRCUIT not in fields:
        return SubscriptionStatus(paused_at=paused, pause_reason=pause_reason, version=version)
    circuit: CircuitState = fields[attr.CIRCUIT]["S"]
    if circuit not in get_args(CircuitState):
        raise ValueError("no state of a circuit")
    return SubscriptionStatus(
        circuit=circuit,
        until=int(fields[attr.CIRCUIT_UNTIL]["N"]),
        failures=int(fields[attr.CIRCUIT_FAILURES]["N"]),
        since=int(fields[attr.CIRCUIT_SINCE]["N"]),
        reason=fields[attr.CIRCUIT_REASON]["S"],
        paused_at=paused,
        pause_reason=pause_reason,
        version=version,
    )


def read_spent(item: Mapping[str, Any]) -> int:
    """Return until when a subscription's rate is used up (ms); 0: it never was.

    Raises:
        Unreadable: it is not what the codec writes.
    """
    try:
        return int(item.get(attr.SPENT, {"N": "0"})["N"])
    except NOT_OURS as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error
