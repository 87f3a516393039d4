"""The routes of the queue: receive, and what becomes of the messages that are held."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

from fairbox.api.queue_models import (
    AcksIn,
    ExtensionsIn,
    NacksIn,
    ReceiveDeadIn,
    ReceivedMessages,
    ReceivedOut,
    ReceiveIn,
    ReleasesIn,
    SettledOut,
    SettledReceipts,
)
from fairbox.api.responses import MAX_ANSWER_BYTES, body_text, encoded_size, without_body
from fairbox.api.route import Answer, Api, Route
from fairbox.errors import FAILED, FairboxError, InvalidInput, StaleReceipt
from fairbox.model.ids import time_of
from fairbox.model.messages import check_topic
from fairbox.model.receipts import Receipt, Received
from fairbox.problems import FieldError, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.api.request import Request

Status = Literal["done", "stale", "failed"]


def receive_messages(api: Api, request: Request) -> Answer:
    """Receive messages of a pulled topic, and hold them."""
    topic = check_topic(request.params["topic"])
    given = request.model(ReceiveIn, required=False)

    received = api.queue.receive(
        topic,
        given.max_messages,
        given.visibility_timeout,
        wait=given.wait,
        consumer=given.consumer,
        max_per_key=given.max_per_key,
    )

    return _fitted(api, received)


def receive_dead_letters(api: Api, request: Request) -> Answer:
    """Receive dead letters of a topic, pulled or pushed, and hold them; an ack purges them."""
    topic = check_topic(request.params["topic"])
    given = request.model(ReceiveDeadIn, required=False)
    most, visibility = given.max_messages, given.visibility_timeout
    return _fitted(api, api.queue.receive(topic, most, visibility, dead=True))


def _fitted(api: Api, received: Sequence[Received]) -> Answer:
    """Answer with as many messages as fit; give the others back."""
    shown, rest = _fitting(received)
    # no attempt is counted: nobody has seen these messages
    if rest:
        # if that fails they come back when their claims end: no reason to hold the others back
        with suppress(FairboxError):
            api.queue.release([one.receipt for one in rest])
    return Answer(200, ReceivedMessages(messages=shown))


def ack_messages(api: Api, request: Request) -> Answer:
    """Acknowledge messages: they are done, and leave."""
    return _all_at_once(request.model(AcksIn).receipts, api.queue.ack)


def nack_messages(api: Api, request: Request) -> Answer:
    """Give messages back: they failed, and are received again or, at last, dead."""
    nacks = request.model(NacksIn).nacks
    _check("nacks", [nack.receipt for nack in nacks], ".receipt")

    # all are checked before the first is settled
    for number, given in enumerate(nacks):
        if given.dead:
            Receipt.parse(given.receipt).check_alive(f"nacks.{number}.receipt")

    def nack(number: int) -> None:
        given = nacks[number]
        if given.dead:
            api.queue.bury(given.receipt, given.reason)
        else:
            api.queue.nack(given.receipt, given.delay, given.reason)

    return _one_by_one([given.receipt for given in nacks], nack)


def extend_messages(api: Api, request: Request) -> Answer:
    """Hold messages for longer."""
    extensions = request.model(ExtensionsIn).extensions
    _check("extensions", [one.receipt for one in extensions], ".receipt")

    def extend(number: int) -> None:
        api.queue.extend(extensions[number].receipt, extensions[number].seconds)

    return _one_by_one([given.receipt for given in extensions], extend)


def release_messages(api: Api, request: Request) -> Answer:
    """Give messages back as if they had not been received: at once, and no attempt counts."""
    return _all_at_once(request.model(ReleasesIn).receipts, api.queue.release)


def _check(field: str, receipts: Sequence[str], tail: str = "") -> None:
    """Refuse the whole call for a text that is no receipt, or is given twice."""
    wrong: list[FieldError] = []
    seen: set[str] = set()
    for number, text in enumerate(receipts):
        name = f"{field}.{number}{tail}"
        try:
            Receipt.parse(text, field=name)
        except InvalidInput as error:
            wrong.append(FieldError(name, error.expected))
            continue
        # the second nack of a receipt would be stale, and hide that the first was done
        if text in seen:
            wrong.append(FieldError(name, "each receipt once"))
        seen.add(text)

    if wrong:
        first = wrong[0]
        raise Refusal("invalid-field", f"{first.field}: expected {first.expected}", wrong)


def _all_at_once(receipts: Sequence[str], call: Callable[[Sequence[str]], None]) -> Answer:
    _check("receipts", receipts)
    stale: set[str] = set()
    try:
        call(receipts)
    except StaleReceipt as error:
        # the others are settled, so this is no refusal of the call
        stale.update(error.receipts)
    return _settled([(r, "stale" if r in stale else "done") for r in receipts])


def _one_by_one(receipts: Sequence[str], call: Callable[[int], None]) -> Answer:
    """Settle receipts one after the other; what fails before anything is done is a refusal."""
    results: list[tuple[str, Status]] = []
    for number, receipt in enumerate(receipts):
        try:
            call(number)
        except StaleReceipt:
            results.append((receipt, "stale"))
        except FAILED:
            # nothing is done yet: the caller may send the whole call again
            if not any(status == "done" for _, status in results):
                raise
            # the rest is not tried: the answer must be there before the gateway's time limit
            results += [(left, "failed") for left in receipts[number:]]
            break
        else:
            results.append((receipt, "done"))

    return _settled(results)


def _settled(results: Sequence[tuple[str, Status]]) -> Answer:
    if all(status == "stale" for _, status in results):
        errors = [FieldError(receipt, "a receipt that holds its message") for receipt, _ in results]
        raise Refusal("stale-receipt", "Nothing was changed: all receipts are stale.", errors)
    shown = [SettledOut(receipt=receipt, status=status) for receipt, status in results]
    return Answer(200, SettledReceipts(results=shown))


def _fitting(received: Sequence[Received]) -> tuple[list[ReceivedOut], Sequence[Received]]:
    """Return what one answer takes, and the rest."""
    shown: list[ReceivedOut] = []
    spent = 0
    for number, one in enumerate(received):
        made = _show(one)
        size = encoded_size(made)
        if size > MAX_ANSWER_BYTES:
            # without its body rather than not at all: no answer has room for it
            made = without_body(made)
            size = encoded_size(made)

        # the first always fits: a receive that found messages never answers empty
        if spent + size > MAX_ANSWER_BYTES:
            return shown, received[number:]
        spent += size
        shown.append(made)

    return shown, ()


def _show(received: Received) -> ReceivedOut:
    message = received.message
    text, encoding = body_text(message.body)
    shown = ReceivedOut.of(
        message,
        receipt=received.receipt,
        receive_count=received.receive_count,
        visible_at=received.visible_at,
        ref=str(Receipt.parse(received.receipt).ref),
        added_at=time_of(message.id),
        headers=dict(message.headers),
        body=text,
        body_encoding=encoding,
        body_omitted=None,
        size=len(message.body),
        reason=received.reason or None,
        subscriptions=sorted(received.subscriptions) or None,
    )

    # before the answer is measured: no need to make megabytes of JSON of it
    return shown if len(message.body) <= MAX_ANSWER_BYTES else without_body(shown)


QUEUE_ROUTES: Final = (
    Route("POST", "/topics/{topic}/receive", receive_messages),
    # a route of its own, so that a policy that lets consumers receive does not let them purge
    Route("POST", "/topics/{topic}/receive-dead", receive_dead_letters),
    Route("POST", "/acks", ack_messages),
    Route("POST", "/nacks", nack_messages),
    Route("POST", "/extensions", extend_messages),
    Route("POST", "/releases", release_messages),
)
