"""Checkpoints of marking, as the deliveries table keeps them for the stream's lifetime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.keys import Item, key
from fairbox.codec.ledger import day_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_KEPT_SECONDS: Final = 172_800  # twice as long as a stream keeps its records
_DAY_MS: Final = 86_400_000


def checkpoint_item(sequence: str, at: int) -> Item:
    """Return the item of a checkpoint.

    Args:
        sequence: stream sequence number of the last record of an invocation.
        at: when that record was made, in milliseconds since 1970 UTC.
    """
    expires = {attr.EXPIRES_AT: {"N": str(at // 1000 + _KEPT_SECONDS)}}
    return key(_pk(at), f"{at:015d}#{sequence}") | expires


def checkpoint_ranges(first: int, last: int) -> Iterator[tuple[str, str, str]]:
    """Yield partition key, first and last sort key of the checkpoints between two times (ms)."""
    for day in range(first // _DAY_MS, last // _DAY_MS + 1):
        yield _pk(day * _DAY_MS), f"{first:015d}#", f"{last:015d}#~"


def read_checkpoint(item: Mapping[str, Any]) -> str:
    """Return the sequence number of a checkpoint."""
    return str(item[attr.SK]["S"]).partition("#")[2]


def _pk(at: int) -> str:
    return f"checkpoint#{day_of(at)}"
