"""The inbox: which messages a consumer has processed, written in its own transactions."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Final

from fairbox.cloudevents import CloudEvent
from fairbox.consumer.handler_outcomes import check_handler, not_understood
from fairbox.errors import InvalidInput, TransactionCancelled
from fairbox.inbox.lambda_events import SIGNATURE, Event, read_events, ref_of
from fairbox.model.clock import Clock, SystemClock
from fairbox.model.ids import parse_id
from fairbox.model.messages import check_text
from fairbox.model.webhook_signatures import parse_secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from fairbox.consumer.coroutines import HandlerLoop

DAY: Final = 86_400
MIN_RETENTION: Final = 15 * DAY
"""Seconds: longer than the 14 days for which a queue may hold a message before its delivery."""
_FAILED: Final = "ConditionalCheckFailed"
_SORT_KEY: Final = "inbox"
logger = logging.getLogger("fairbox")


class Inbox:
    """Makes a consumer's transactions idempotent by (subscription, message id).

    Each message takes one small item of the consumer's table, which the transaction puts on the
    condition that it is not there: 2 WRU a message, one more action of the transaction's 100.
    DynamoDB deletes the items after `retention`, at no cost.

    Args:
        table: name of the consumer's table, one of its own or one made for the inbox.
        subscription: text that names the processing, such as `orders/billing`: two consumers with
            different texts process a message once each. At most 256 bytes.
        retention: seconds, at least 15 days, after which a message may be processed again. It must
            exceed the longest time between two deliveries of a message: the retention of queues on
            the way, the longest pause of the subscription, the age of dead letters that are
            redriven.
        partition_key: the table's partition key, an attribute of type S.
        sort_key: the table's sort key, of type S, if it has one.
        expires: the table's TTL attribute.
        secrets: of the subscription, if it is a webhook: `whsec_...`; several while one is changed.
        clock: gives the time of expiry and the age of a signature.

    Raises:
        InvalidInput: a value is not one that the field takes.
    """

    def __init__(
        self,
        table: str,
        subscription: str,
        *,
        retention: float = 30 * DAY,
        partition_key: str = "id",
        sort_key: str | None = None,
        expires: str = "expires_at",
        secrets: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(subscription, str) or not subscription:
            raise InvalidInput("subscription", "text, such as topic/subscription")
        if not MIN_RETENTION <= retention <= 3650 * DAY:
            raise InvalidInput("retention", f"{MIN_RETENTION} (15 days) to {3650 * DAY} seconds")
        names = [name for name in (partition_key, sort_key, expires) if name is not None]
        if not all(names) or len(set(names)) < len(names):
            raise InvalidInput("partition_key", "three different names of attributes")
        check_text("subscription", subscription)
        self._table = table
        self._subscription = subscription
        self._retention = int(retention)
        self._partition_key, self._sort_key, self._expires = partition_key, sort_key, expires
        self._keys = [parse_secret(secret) for secret in secrets]
        self._clock = clock or SystemClock()
        self._loop: HandlerLoop | None = None

    def events(self, lambda_event: Mapping[str, Any]) -> Iterator[Event]:
        """Yield the messages of a Lambda event, in its order.

        Events of SQS, SNS, SNS or EventBridge to SQS, Kinesis, EventBridge, function URLs, API
        Gateway, and an invocation by destination `lambda:`. A request is checked with `secrets`.

        Raises:
            InvalidInput: the event is of another kind. A single record that is no message raises it
                when its `Event` is used.
        """
        return read_events(lambda_event, keys=self._keys, now=self._clock.now())

    def transact_items(self, event: Event | CloudEvent | str) -> list[Any]:
        """Return the action that makes the consumer's own transaction happen once.

        An item past its time that DynamoDB has not deleted yet counts as absent.

        Args:
            event: the message: one of `events`, the CloudEvent that arrived, or the message's id.
                Pass the id of a webhook from its signed header `webhook-id`, not the CloudEvent.

        Raises:
            InvalidInput: it is no message of Fairbox.
        """
        now = int(self._clock.now())
        item = {**self._item_key(event), self._expires: {"N": str(now + self._retention)}}
        put = {
            "TableName": self._table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#key) OR #expires <= :now",
            "ExpressionAttributeNames": {"#key": self._partition_key, "#expires": self._expires},
            "ExpressionAttributeValues": {":now": {"N": str(now)}},
            # by the old item `already_processed` knows which action was refused
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return [{"Put": put}]

    def already_processed(self, error: BaseException, event: Event | CloudEvent | str) -> bool:
        """Whether a transaction was cancelled because this message was processed before.

        The cancelled action is recognised by its old item, so its place in the transaction does not
        matter. False for all other reasons, such as a conflict with another transaction or a
        condition of the consumer's own: then the message was not processed, and must be repeated.

        Args:
            error: the error of the call: botocore's `ClientError`, or `TransactionCancelled` of
                `Outbox.transact`.
            event: as given to `transact_items`.
        """
        key = self._item_key(event)
        return any(
            code == _FAILED and all(item.get(name) == value for name, value in key.items())
            for code, item in _reasons(error)
        )

    def handle(
        self, lambda_event: Mapping[str, Any], process: Callable[[Event], object]
    ) -> dict[str, Any]:
        """Process the messages of a Lambda event and return the function's answer.

        An error of `process` that says `already_processed` counts as success. Any other error
        fails its record alone, and of Kinesis and of a FIFO queue's group the later ones with it.
        Where a source reports no records, the error is raised.

        Args:
            lambda_event: as for `events`.
            process: writes one transaction with `transact_items(event)` in it, and returns None. It
                may be a coroutine function: all coroutines of an inbox run on one event loop. Any
                other answer than None is an error, so that nothing counts as done unrun.

        Returns:
            `batchItemFailures` for SQS and Kinesis (set `ReportBatchItemFailures` in the event
            source mapping), a `statusCode` for a request: 200, 401 for a signature that is not
            valid, 400 for no message. Else an empty dict.

        Raises:
            InvalidInput: the event is of another kind, or `process` cannot process messages.
        """
        check_handler("process", process)
        failures: list[str] = []
        stopped: set[str] = set()
        answer: dict[str, Any] = {}
        for event in self.events(lambda_event):
            if event.record_id is None:
                answer = self._handle_one(event, process)
                continue
            answer = {"batchItemFailures": []}
            # a later record of its group must not overtake the one that failed
            if event.group in stopped or not self._succeeds(event, process):
                failures.append(event.record_id)
                if event.group is not None:
                    stopped.add(event.group)
        if failures:
            answer["batchItemFailures"] = [{"itemIdentifier": name} for name in failures]
        return answer

    def _handle_one(self, event: Event, process: Callable[[Event], object]) -> dict[str, Any]:
        if event.source == "http" and isinstance(event.content, InvalidInput):
            # not raised: that would be a 5xx, which senders take for an outage
            logger.warning("a request is no message", extra={"reason": str(event.content)})
            return {"statusCode": 401 if event.content.field == SIGNATURE else 400}
        self._process(event, process)
        return {"statusCode": 200} if event.source == "http" else {}

    def _succeeds(self, event: Event, process: Callable[[Event], object]) -> bool:
        try:
            self._process(event, process)
        except Exception:
            # whatever it is, the other records of the batch go on
            logger.exception("a record was not processed", extra={"record": event.record_id})
            return False
        return True

    def _process(self, event: Event, process: Callable[[Event], object]) -> None:
        message_id = event.message_id  # raises for a record that is no message
        try:
            self._call(event, process)
        except Exception as error:
            if not self.already_processed(error, event):
                raise
            logger.info("a message was processed before", extra={"message_id": message_id})

    def _call(self, event: Event, process: Callable[[Event], object]) -> None:
        answer = process(event)
        if inspect.isawaitable(answer):
            answer = self._awaited(answer)
        if answer is not None:
            raise not_understood("process", answer, "None")

    def _awaited(self, awaitable: Awaitable[object]) -> object:
        # imported where it is used: most functions run no coroutines, and asyncio takes long
        from fairbox.consumer.coroutines import HandlerLoop  # noqa: PLC0415

        if self._loop is None:
            self._loop = HandlerLoop()
        return self._loop.run(awaitable)

    def _item_key(self, event: Event | CloudEvent | str) -> dict[str, dict[str, str]]:
        if isinstance(event, Event):
            message_id = event.message_id
        elif isinstance(event, CloudEvent):
            message_id = ref_of(event).id
        else:
            message_id = parse_id(event, field="event")
        # with a prefix: the table may have other items of the consumer
        key = {self._partition_key: {"S": f"inbox#{self._subscription}#{message_id}"}}
        return key if self._sort_key is None else {**key, self._sort_key: {"S": _SORT_KEY}}


def _reasons(error: BaseException) -> list[tuple[str, Mapping[str, Any]]]:
    """Return code and old item of each action of a cancelled transaction."""
    if isinstance(error, TransactionCancelled):
        return error.reasons
    # of botocore's error, known by its attribute: the package imports no SDK
    response: Any = getattr(error, "response", None) or {}
    reasons = response.get("CancellationReasons", [])
    return [(reason.get("Code", ""), reason.get("Item", {})) for reason in reasons]
