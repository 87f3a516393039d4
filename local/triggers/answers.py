"""Lambda's rules of partial answers: the records of a batch that a function's answer fails.

An empty answer is success. A failure entry without a usable identifier fails the whole batch.
Any other malformed answer counts as success for streams, as on AWS, and loses records silently.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.functions.invoker import InvokeResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A failed batch, to be repeated from the record at index `first`.

    `partial`: the function named it. `counts`: the invocation took place and costs an attempt.
    """

    first: int = 0
    partial: bool = False
    counts: bool = True
    function_error: str | None = None


def stream_failure(
    result: InvokeResult, sequence_numbers: Sequence[str], *, report: bool
) -> Failure | None:
    """Return the failure of a stream's batch, or None if it succeeded.

    `report`: the mapping has `ReportBatchItemFailures`.
    """
    if result.function_error is not None:
        return Failure(function_error=result.function_error)
    if not report:
        return None
    named = _identifiers(result.payload)
    if named is None:
        return None
    if any(not isinstance(one, str) or not one for one in named):
        return Failure()
    positions = {number: index for index, number in enumerate(sequence_numbers)}
    known = [positions[one] for one in named if one in positions]
    return Failure(first=min(known), partial=True) if known else None


def failed_messages(result: InvokeResult, ids: Sequence[str], *, report: bool) -> set[str]:
    """Return the message ids of a queue's batch that stay in the queue.

    An answer that is not JSON, and an identifier that is not in the batch, fail all of them.
    """
    everything = set(ids)
    if result.function_error is not None:
        return everything
    if not report:
        return set()
    try:
        named = _identifiers(result.payload, strict=True)
    except ValueError:
        return everything
    if named is None:
        return set()
    if any(not isinstance(one, str) or one not in everything for one in named):
        return everything
    return set(named)


def _identifiers(payload: bytes, *, strict: bool = False) -> list[Any] | None:
    """Return the identifiers in an answer (None for an entry without one); None: it has no list."""
    try:
        answer = json.loads(payload or b"null")
    except ValueError:
        if strict:
            raise
        return None
    entries = answer.get("batchItemFailures") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        return None
    return [one.get("itemIdentifier") if isinstance(one, dict) else None for one in entries]
