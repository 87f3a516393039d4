"""Calls to DynamoDB: errors translated once, throttling and conflicts retried with full jitter."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)

from fairbox.codec.attributes import PK
from fairbox.errors import FairboxError, NotConfigured, Throttled, TransactionCancelled, Unavailable
from fairbox.model.deadline import out_of_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

    from fairbox.model.clock import Clock

TRIES: Final = 8
BUDGET_SECONDS: Final = 20.0  # after which no further try begins: callers have limits of their own
_UNTIL: Final[ContextVar[float]] = ContextVar("until", default=inf)
_BASE_SECONDS: Final = 0.05
_CAP_SECONDS: Final = 3.0
_THROTTLED: Final = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
        "ThrottledException",
    }
)
_TRANSIENT: Final = frozenset(
    {
        "InternalServerError",
        "ServiceUnavailable",
        "TransactionConflictException",
        "TransactionInProgressException",
        "LimitExceededException",
    }
)
_INVALID: Final = "ValidationError"  # of an action in a transaction
_CONFLICT: Final = frozenset(
    {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
)


@contextmanager
def tries_until(time: float) -> Iterator[None]:
    """Let no call of the block begin another try after `time` (seconds since 1970 UTC).

    One call has a budget of its own; this bounds many calls together, such as a request's. A call
    still has its first try, but for further ones of a bulk, which count as not done.
    """
    token = _UNTIL.set(time)
    try:
        yield
    finally:
        _UNTIL.reset(token)


class ConditionFailed(FairboxError):
    """A condition of a write did not hold; `old` is the item as it is, empty when there is none."""

    def __init__(self, operation: str, old: Mapping[str, Any]) -> None:
        super().__init__(f"the condition of {operation} did not hold")
        self.old = dict(old)


class ItemTooLarge(FairboxError):
    """An item would have over 400 KB; nothing was written."""

    def __init__(self, operation: str) -> None:
        super().__init__(f"{operation}: the item would have over 400 KB")


class Calls:
    """Makes calls on a low-level DynamoDB client.

    Every operation that goes through here may be repeated: a write that was applied but whose
    answer was lost is made again, and the caller recognises its own work in the failed condition.

    Args:
        client: boto3's DynamoDB client, or one that has its methods.
        clock: waits between tries.
        rng: jitter.
    """

    def __init__(self, client: Any, clock: Clock, rng: Random) -> None:
        self.client = client
        self.clock = clock
        self.rng = rng

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Make one call, again while it is throttled or in conflict, and return the answer.

        Raises:
            ConditionFailed: the condition did not hold.
            ItemTooLarge: an item would have over 400 KB.
            TransactionCancelled: an action of the transaction was refused.
            Throttled: it was throttled to the last try.
            Unavailable: the service failed to the last try, or refused for another reason; or no
                time is left for a call (`calls_until`).
            NotConfigured: the table is not there.
        """
        if operation == "transact_write_items" and "ClientRequestToken" not in arguments:
            # one token for all tries: what was applied without an answer is not applied again
            arguments["ClientRequestToken"] = str(uuid.UUID(int=self.rng.getrandbits(128)))
        end = min(self.clock.now() + BUDGET_SECONDS, _UNTIL.get())
        for attempt in range(1, TRIES + 1):
            try:
                answer: dict[str, Any] = getattr(self.client, operation)(**arguments)
            except (ClientError, BotoCoreError) as error:
                failure, repeatable = _translate(operation, error)
                late = self.clock.now() >= end or out_of_time()
                if not repeatable or attempt == TRIES or late:
                    raise failure from error
                self.back_off(attempt)
            else:
                return answer
        raise AssertionError  # the last try returned or raised

    def call_once(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Make one call and never repeat it, for writes that a repetition could do harm.

        Raises:
            FairboxError: as `call` does; unless it was throttled it may have been carried out.
        """
        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise _translate(operation, error)[0] from error
        return answer

    @property
    def repeats(self) -> bool:
        """Whether the client repeats calls by itself, as boto3's do by default."""
        config = getattr(getattr(self.client, "meta", None), "config", None)
        retries: Mapping[str, Any] | None = getattr(config, "retries", None)
        return config is not None and (retries or {}).get("total_max_attempts") != 1

    @property
    def region(self) -> str | None:
        """The region of the tables; None: the client is none of AWS's."""
        return getattr(getattr(self.client, "meta", None), "region_name", None)

    @property
    def out_of_time(self) -> bool:
        """Whether what encloses the call lets no further try begin."""
        return self.clock.now() >= _UNTIL.get() or out_of_time()

    def back_off(self, attempt: int) -> None:
        """Wait before try `attempt` (from 1): full jitter under an exponential bound."""
        bound = min(_CAP_SECONDS, _BASE_SECONDS * 2.0**attempt)
        self.clock.sleep(self.rng.random() * bound)

    def tries(self) -> Iterator[None]:
        """Allow tries while there is time, with a pause before each but the first."""
        for attempt in range(TRIES):
            if attempt:
                if self.out_of_time:
                    return
                self.back_off(attempt)
            yield

    def pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Yield the pages of a query or scan, each read when it is asked for."""
        while True:
            page = self.call(operation, **arguments)
            yield page
            if "LastEvaluatedKey" not in page:
                return
            arguments["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def partition(self, table: str, pk: str) -> Iterator[dict[str, Any]]:
        """Yield the items of a partition, read consistently (1 RRU for 4 KB)."""
        for page in self.pages(
            "query",
            TableName=table,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk",
            ExpressionAttributeNames={"#pk": PK},
            ExpressionAttributeValues={":pk": {"S": pk}},
        ):
            yield from page["Items"]

    def batch_write(self, table: str, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Write 25 a call, unprocessed ones again with back-off; return what was not written."""
        waiting = list(requests)
        for _ in self.tries():
            unprocessed: list[dict[str, Any]] = []
            for start in range(0, len(waiting), 25):
                chunk = waiting[start : start + 25]
                if start and self.out_of_time:
                    return unprocessed + waiting[start:]
                try:
                    answer = self.call("batch_write_item", RequestItems={table: chunk})
                except (Throttled, Unavailable):
                    return unprocessed + waiting[start:]
                unprocessed += answer.get("UnprocessedItems", {}).get(table, [])
            if not unprocessed:
                return []
            waiting = unprocessed
        return waiting

    def batch_get(
        self,
        table: str,
        keys: Sequence[dict[str, Any]],
        *,
        consistent: bool = True,
        only: Sequence[str] = (),
    ) -> list[dict[str, Any]]:
        """Return the items of these keys that are there, 100 a call, in no order.

        Args:
            table: the table.
            keys: of the items.
            consistent: whether to see every write that has been answered, at twice the units.
            only: the attributes to return; empty: all.

        Raises:
            Throttled: some keys stayed unprocessed to the last try.
        """
        found: list[dict[str, Any]] = []
        request: dict[str, Any] = {"ConsistentRead": consistent}
        if only:
            names = {f"#{name}": name for name in only}
            request |= {
                "ProjectionExpression": ", ".join(names),
                "ExpressionAttributeNames": names,
            }
        waiting = list(keys)
        for _ in self.tries():
            unprocessed: list[dict[str, Any]] = []
            for start in range(0, len(waiting), 100):
                page = request | {"Keys": waiting[start : start + 100]}
                answer = self.call("batch_get_item", RequestItems={table: page})
                found += answer.get("Responses", {}).get(table, [])
                unprocessed += answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
            if not unprocessed:
                return found
            waiting = unprocessed
        raise Throttled("batch_get_item")


def _reasons(error: ClientError) -> list[tuple[str, dict[str, Any]]]:
    reasons: Any = error.response.get("CancellationReasons", [])
    return [(r.get("Code", "None"), r.get("Item", {})) for r in reasons]


def _repeatable(error: ClientError) -> bool:
    code = error.response["Error"]["Code"]
    if code == "TransactionCanceledException":
        codes = {code for code, _ in _reasons(error)} - {"None"}
        return bool(codes) and codes <= _CONFLICT
    return code in _THROTTLED or code in _TRANSIENT


def _translate(operation: str, error: ClientError | BotoCoreError) -> tuple[FairboxError, bool]:
    """Return the error as ours, and whether the call may be made again at once."""
    if isinstance(error, ClientError):
        return _translate_answer(operation, error), _repeatable(error)
    unanswered = isinstance(error, HTTPClientError | BotoConnectionError)
    return Unavailable(operation, type(error).__name__ if unanswered else str(error)), unanswered


def _translate_answer(operation: str, error: ClientError) -> FairboxError:
    response: Any = error.response
    code = response["Error"]["Code"]
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(operation, response.get("Item", {}))
    if code == "TransactionCanceledException":
        return _translate_cancellation(operation, error)
    if code in _THROTTLED:
        return Throttled(operation)
    if code == "ValidationException" and _over_size(response["Error"]):
        return ItemTooLarge(operation)
    if code == "ResourceNotFoundException":
        return NotConfigured(f"table ({response['Error'].get('Message', '')})")
    return Unavailable(operation, f"{code}: {response['Error'].get('Message', '')}")


def _translate_cancellation(operation: str, error: ClientError) -> FairboxError:
    if _repeatable(error):
        throttled = {c for c, _ in _reasons(error)} - {"None", "TransactionConflict"}
        return Throttled(operation) if throttled else Unavailable(operation, "conflicts")
    reasons: Any = error.response.get("CancellationReasons", [])
    if any(reason.get("Code") == _INVALID and _over_size(reason) for reason in reasons):
        return ItemTooLarge(operation)
    return TransactionCancelled(_reasons(error))


def _over_size(refusal: Mapping[str, Any]) -> bool:
    return str(refusal.get("Message", "")).startswith("Item size")
