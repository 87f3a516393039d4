"""How subscriptions stand, in their rows: circuits and pauses to models and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from fairbox.codec import attributes as names
from fairbox.codec.keys import key_text
from fairbox.codec.messages import number
from fairbox.errors import FairboxError, Unreadable
from fairbox.model.subscription_status import NEW, CircuitState, Standing

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_OURS: Final = (
    FairboxError, LookupError, ValueError, TypeError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""What reading raises where a row is not what the codec writes."""


def standing_value(standing: Standing) -> dict[str, Any] | None:
    """Return the attribute that says how a subscription stands; None: as a new one does."""
    fields: dict[str, Any] = {}
    if standing.circuit != "closed":
        fields = {
            names.CIRCUIT: {"S": standing.circuit},
            names.CIRCUIT_UNTIL: number(standing.until),
            names.CIRCUIT_FAILURES: number(standing.failures),
            names.CIRCUIT_SINCE: number(standing.since),
            names.CIRCUIT_REASON: {"S": standing.reason},
        }
    if standing.paused_at is not None:
        fields[names.PAUSED_AT] = number(standing.paused_at)
        fields[names.PAUSE_REASON] = {"S": standing.pause_reason}
    return {"M": fields} if fields else None


def standing_attributes(standing: Standing) -> dict[str, Any]:
    """Return the attributes of a row that say how a subscription stands; a new one has none."""
    if not standing.version:
        return {}
    value = standing_value(standing)
    stands = {} if value is None else {names.STANDING: value}
    return {names.STANDING_VERSION: number(standing.version), **stands}


def read_standing(item: Mapping[str, Any]) -> Standing:
    """Return how a subscription stands, from its row.

    Raises:
        Unreadable: it is not what `standing_value` writes.
    """
    if names.STANDING_VERSION not in item:
        return NEW
    try:
        return _read(item)
    except NOT_OURS as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error


def _read(item: Mapping[str, Any]) -> Standing:
    version = int(item[names.STANDING_VERSION]["N"])
    fields = item.get(names.STANDING, {"M": {}})["M"]
    paused_at = fields.get(names.PAUSED_AT)
    pause_reason = fields.get(names.PAUSE_REASON, {"S": ""})["S"]
    paused = None if paused_at is None else int(paused_at["N"])
    if names.CIRCUIT not in fields:
        return Standing(paused_at=paused, pause_reason=pause_reason, version=version)
    circuit: CircuitState = fields[names.CIRCUIT]["S"]
    if circuit not in get_args(CircuitState):
        raise ValueError("no state of a circuit")
    return Standing(
        circuit=circuit,
        until=int(fields[names.CIRCUIT_UNTIL]["N"]),
        failures=int(fields[names.CIRCUIT_FAILURES]["N"]),
        since=int(fields[names.CIRCUIT_SINCE]["N"]),
        reason=fields[names.CIRCUIT_REASON]["S"],
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
        return int(item.get(names.SPENT, {"N": "0"})["N"])
    except NOT_OURS as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error
