"""Calls to DynamoDB: errors translated once, throttling and conflicts retried with full jitter."""

from __future__ import annotations

import re
import uuid
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, ParamValidationError
from botocore.exceptions import ConnectionError as BotoConnectionError

from fairbox.errors import (
    FairboxError,
    ItemTooLarge,
    Throttled,
    TransactionCancelled,
    Unavailable,
    UnknownTable,
)
from fairbox.model.clock import NO_TIME, Clock, out_of_time, seconds_left
from fairbox.sdk.clients import low_level
from fairbox.sdk.service_errors import answer_is_passing, code_of, service_error
from fairbox.tables.keys import PK, SK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random


TRIES: Final = 8
BUDGET_SECONDS: Final = 20.0  # after which no further try begins: callers have limits of their own
_UNTIL: Final[ContextVar[float]] = ContextVar("until", default=inf)
_BASE_SECONDS: Final = 0.05
_CAP_SECONDS: Final = 3.0
_TRIES_BY_DEFAULT: Final = 10  # of boto3's DynamoDB client
_THROTTLED: Final = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
        "ThrottledException",
    }
)
_CANCELLED: Final = "TransactionCanceledException"
_INVALID: Final = "ValidationError"  # of an action in a transaction
_CONFLICT: Final = frozenset(
    {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
)
# botocore's reports on a request's parameters
_OF_TYPE: Final = re.compile(
    r"Invalid type for parameter (?P<path>.*?), value: .*?, "
    r"type: <class '(?P<got>[^']*)'>, valid types: (?P<wanted>[^\n]*)",
    re.DOTALL,
)
_UNKNOWN: Final = re.compile(
    r'Unknown parameter in (?P<path>.*?): "(?P<name>.*?)", must be one of: (?P<known>[^\n]*)'
)
_MISSING: Final = re.compile(r'Missing required parameter in (?P<path>.*?): "(?P<name>\w*)"')
_SAYS: Final = "what DynamoDB takes; it says: "
_WANTED: Final = {"<class 'dict'>": "an object", "<class 'str'>": "text"}
_IN_STATEMENT: Final = re.compile(r'(?:INTO|UPDATE|FROM) "([^"]+)"')


@contextmanager
def tries_until(time: float) -> Iterator[None]:
    """Prevent further tries of the block's calls after `time` (seconds since 1970 UTC).

    One call has a budget of its own; this bounds many calls together, such as a request's. A call
    still has its first try, except further calls of a bulk, which count as not done.
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


class MalformedRequest(Unavailable):
    """DynamoDB, or its client, takes a request for malformed; it names the part where it can.

    Within the library that is a fault of ours; of a caller's own items it is theirs.
    """

    def __init__(self, operation: str, path: str, expected: str) -> None:
        super().__init__(operation, f"{path}: {expected}" if path else expected, "never")
        self.path = path
        self.expected = expected


class Calls:
    """Makes calls on boto3's low-level DynamoDB client, or one that has its methods.

    Every operation that goes through here may be repeated: a write that was applied but whose
    answer was lost is made again, and the caller recognises its own work in the failed condition.
    """

    def __init__(self, client: Any, clock: Clock, rng: Random) -> None:
        self.client = low_level(client)
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
            UnknownTable: a table is not there.
            NotAllowed: the credentials may not, or there are none.
        """
        if operation == "transact_write_items" and "ClientRequestToken" not in arguments:
            # one token for all tries: what was applied without an answer is not applied again
            arguments["ClientRequestToken"] = str(uuid.UUID(int=self.rng.getrandbits(128)))

        # Lambda would cut it off, and nobody would know whether it was carried out
        if out_of_time():
            raise Unavailable(operation, NO_TIME)
        end = min(self.clock.now() + BUDGET_SECONDS, _UNTIL.get())

        for attempt in range(1, TRIES + 1):
            try:
                answer: dict[str, Any] = getattr(self.client, operation)(**arguments)
            except (ClientError, BotoCoreError) as error:
                late = self.clock.now() >= end or out_of_time()
                if not late and attempt < TRIES and _repeatable(error):
                    self.back_off(attempt)
                    # the pause may have used up the time
                    if not out_of_time():
                        continue
                raise self._translated(operation, arguments, error) from error
            else:
                return answer

        raise AssertionError  # the last try returned or raised

    def transact(self, actions: Sequence[Mapping[str, Any]], token: str | None = None) -> None:
        """Do these actions, all or none, under the caller's token where there is one.

        Raises:
            TransactionCancelled: an action was refused, and nothing is done.
            FairboxError: as `call`.
        """
        named = {} if token is None else {"ClientRequestToken": token}
        self.call("transact_write_items", TransactItems=list(actions), **named)

    def transacted(self, actions: Sequence[Mapping[str, Any]]) -> bool:
        """Do these actions, all or none; return whether they are done, and none was refused."""
        try:
            self.transact(actions)
        except TransactionCancelled:
            return False
        return True

    def written(self, operation: str, **arguments: Any) -> bool:
        """Make one call as `call` does; return whether its condition held."""
        return self.refused(operation, **arguments) is None

    def refused(self, operation: str, **arguments: Any) -> dict[str, Any] | None:
        """Make one call as `call` does; return the item that refused it, None: it is carried out.

        The item is empty where there is none.
        """
        try:
            self.call(operation, **arguments)
        except ConditionFailed as failed:
            return failed.old
        return None

    def get(
        self, table: str, key: Mapping[str, Any], *, consistent: bool = True
    ) -> dict[str, Any] | None:
        """Return an item; None: there is none."""
        answer = self.call("get_item", TableName=table, Key=key, ConsistentRead=consistent)
        return answer.get("Item")

    def call_once(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Make one call and never repeat it, for writes that a repetition could do harm.

        Raises:
            FairboxError: as `call` does; unless it was throttled it may have been carried out.
        """
        if out_of_time():
            raise Unavailable(operation, NO_TIME)
        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise self._translated(operation, arguments, error) from error
        return answer

    def _translated(
        self, operation: str, arguments: Mapping[str, Any], error: ClientError | BotoCoreError
    ) -> FairboxError:
        # botocore refuses it before anything is sent
        if isinstance(error, ParamValidationError):
            return _malformed(operation, error)

        if isinstance(error, ClientError):
            if code_of(error) == "ResourceNotFoundException":
                return UnknownTable(_tables_of(arguments), self.region or "", self._account)
            refused = _refused(operation, error)
            if refused is not None:
                return refused
        return service_error("dynamodb", error, operation)

    @property
    def repeats(self) -> bool:
        """Whether the client repeats calls by itself, as boto3's do by default."""
        config = getattr(getattr(self.client, "meta", None), "config", None)
        retries: Mapping[str, Any] | None = getattr(config, "retries", None)
        # boto3 counts the first call too
        return config is not None and (retries or {}).get("total_max_attempts") != 1

    @property
    def longest_call(self) -> float:
        """Seconds that one call of the client may take, with the client's own retries."""
        config = getattr(getattr(self.client, "meta", None), "config", None)
        if config is None:
            return 0.0  # a double
        tries = (config.retries or {}).get("total_max_attempts", _TRIES_BY_DEFAULT)
        return float((config.connect_timeout + config.read_timeout) * tries)

    @property
    def region(self) -> str | None:
        """The region of the tables; None: the client is none of AWS's."""
        return getattr(getattr(self.client, "meta", None), "region_name", None)

    @property
    def _account(self) -> str:
        """The account of the client's credentials; empty: they do not tell."""
        signer = getattr(self.client, "_request_signer", None)
        with suppress(BotoCoreError):  # they may have to be read anew for it
            return getattr(getattr(signer, "_credentials", None), "account_id", None) or ""
        return ""

    @property
    def out_of_time(self) -> bool:
        """Whether an enclosing time limit forbids a further try."""
        return self.clock.now() >= _UNTIL.get() or out_of_time()

    def back_off(self, attempt: int) -> None:
        """Wait before try `attempt` (from 1): full jitter under an exponential bound."""
        # from zero on: writers that were refused together must not come back together
        bound = min(_CAP_SECONDS, _BASE_SECONDS * 2.0**attempt)
        self.clock.sleep(min(self.rng.random() * bound, max(0.0, seconds_left())))

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

    def partition(
        self, table: str, pk: str, sort: str = "", **texts: str
    ) -> Iterator[dict[str, Any]]:
        """Yield items of a partition as `key_condition` names them, consistent (1 RRU for 4 KB)."""
        condition = key_condition(pk, sort, **texts)
        for page in self.pages("query", TableName=table, ConsistentRead=True, **condition):
            yield from page["Items"]

    def batch_write(self, table: str, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Write 25 a call, unprocessed ones again with back-off; return the unwritten requests."""
        waiting = list(requests)
        for _ in self.tries():
            unprocessed: list[dict[str, Any]] = []
            for start in range(0, len(waiting), 25):
                chunk = waiting[start : start + 25]
                # the first chunk always has its try; the others count as not written
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

        `only` names the attributes to return; empty: all. A consistent read takes twice the units.

        Raises:
            Throttled: some keys stayed unprocessed to the last try.
        """
        found: list[dict[str, Any]] = []
        request: dict[str, Any] = {"ConsistentRead": consistent}
        if only:
            names = {f"#{name}": name for name in only}
            request |= {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}

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

        # not the items found so far: callers take a missing item for one that is not there
        raise Throttled("batch_get_item")


class Rows:
    """Rows of a table, for classes that read and write those of one kind."""

    def __init__(self, calls: Calls, table: str) -> None:
        self._calls = calls
        self._table = table


def key_condition(pk: str, sort: str = "", **texts: str) -> dict[str, Any]:
    """Return the arguments of a query that name items of a partition.

    `sort` is a condition of the sort key, such as `#sk BETWEEN :low AND :high`, and `texts` are
    its values by name; without it, all items are named.
    """
    return {
        "KeyConditionExpression": f"#pk = :pk AND {sort}" if sort else "#pk = :pk",
        "ExpressionAttributeNames": {"#pk": PK, "#sk": SK} if sort else {"#pk": PK},
        "ExpressionAttributeValues": {":pk": {"S": pk}}
        | {f":{name}": {"S": text} for name, text in texts.items()},
    }


def _reasons(error: ClientError) -> list[tuple[str, dict[str, Any]]]:
    reasons: Any = error.response.get("CancellationReasons", [])
    return [(r.get("Code", "None"), r.get("Item", {})) for r in reasons]


def _repeatable(error: ClientError | BotoCoreError) -> bool:
    """Whether the call may be made again at once."""
    if isinstance(error, BotoCoreError):
        return isinstance(error, HTTPClientError | BotoConnectionError)
    if code_of(error) == _CANCELLED:
        # a condition that did not hold would refuse it again, whatever else was in the way
        codes = {code for code, _ in _reasons(error)} - {"None"}
        return bool(codes) and codes <= _CONFLICT
    return answer_is_passing(error)


def _refused(operation: str, error: ClientError) -> FairboxError | None:
    """Return the error of an answer that only DynamoDB gives; None: any service gives it."""
    response: Any = error.response
    code = code_of(error)
    if code in _THROTTLED:
        return Throttled(operation)

    match code:
        case "ConditionalCheckFailedException":
            return ConditionFailed(operation, response.get("Item", {}))
        case "TransactionCanceledException":
            return _cancelled(operation, error)
        case "ValidationException" if _over_size(response["Error"]):
            return ItemTooLarge(operation)
        case "ValidationException":
            return MalformedRequest(operation, "", _SAYS + response["Error"].get("Message", ""))

    return None


def _cancelled(operation: str, error: ClientError) -> FairboxError:
    # conflicts and throttling to the last try: none of the caller's conditions failed
    if _repeatable(error):
        throttled = {c for c, _ in _reasons(error)} - {"None", "TransactionConflict"}
        return Throttled(operation) if throttled else Unavailable(operation, "conflicts")

    response: Any = error.response
    for n, reason in enumerate(response.get("CancellationReasons", [])):
        if reason.get("Code") == _INVALID:
            action = f"actions[{n}]"
            if _over_size(reason):
                return ItemTooLarge(action)
            return MalformedRequest(operation, action, _SAYS + reason.get("Message", ""))

    return TransactionCancelled(_reasons(error))


def _malformed(operation: str, error: ParamValidationError) -> FairboxError:
    """Return the first thing that botocore's report names, without its value: it may be secret."""
    # `actions[n]`, as of a cancelled transaction: callers find their own item by the number
    report = str(error).replace("TransactItems", "actions", 1)
    if found := _OF_TYPE.search(report):
        typed = "; values are typed, such as {'S': 'text'}" if found["path"].count(".") > 1 else ""
        wanted = _WANTED.get(found["wanted"], found["wanted"])
        expected = f"{wanted}, got {found['got']}{typed}"
    elif found := _UNKNOWN.search(report):
        expected = f"one of {found['known']}, got {found['name']!r}"
    elif found := _MISSING.search(report):
        expected = f"the field {found['name']!r}"
    else:
        return MalformedRequest(operation, "", "a request that DynamoDB's API takes")

    return MalformedRequest(operation, found["path"], expected)


def _tables_of(arguments: Mapping[str, Any]) -> list[str]:
    """Return the tables that a request names."""
    names = [arguments.get("TableName"), *arguments.get("RequestItems", ())]
    for action in arguments.get("TransactItems", ()):
        names += [part.get("TableName") for part in action.values()]
    for statement in arguments.get("Statements", ()):
        names += _IN_STATEMENT.findall(statement["Statement"])[:1]
    return list(dict.fromkeys(filter(None, names)))


def _over_size(refusal: Mapping[str, Any]) -> bool:
    # DynamoDB has no code of its own for it
    return str(refusal.get("Message", "")).startswith("Item size")
