"""Answers of a handler, and the outcomes of its message."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from fairbox.errors import InvalidInput
from fairbox.model.messages import check_delay

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from fairbox.model.receipts import Received
    from fairbox.model.topics import RetryPolicy

MAX_REASON_BYTES: Final = 256
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class Retry(Exception):
    """Try later: raised or returned by a handler, it gives the message back.

    It counts as an attempt, as every receive does.

    Args:
        delay: seconds until the message is due again.
        reason: kept with the message.

    Example:
        ```python
        def handler(received):
            if not warehouse.is_open():
                raise Retry(600, "the warehouse is closed")
        ```
    """

    def __init__(self, delay: float = 0, reason: str = "retry") -> None:
        check_delay(delay)
        _check_reason(reason)
        super().__init__(delay, reason)
        self.delay = delay
        self.reason = reason


class Dead(Exception):
    """Give up: raised or returned by a handler, it makes the message a dead letter.

    Args:
        reason: kept with the dead letter.
    """

    def __init__(self, reason: str) -> None:
        _check_reason(reason)
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a message.

    Attributes:
        kind: the way to settle it.
        delay: seconds until it is due again; None: the back-off of the topic's retry policy.
        reason: kept with the message.
    """

    kind: Literal["ack", "fail", "retry", "dead", "release", "abandon"]
    delay: float | None = 0
    reason: str = ""


ACK: Final = Outcome("ack")
RELEASE: Final = Outcome("release")


@dataclass(frozen=True, slots=True)
class Handling:
    """A handler, and the fate of messages for which it fails.

    Attributes:
        run: awaits the handler's result, if it is awaitable.
    """

    handler: Callable[[Received], object]
    max_attempts: int
    backoff: RetryPolicy | None
    rng: Random
    run: Callable[[Awaitable[object]], object]

    def handle(self, received: Received) -> Outcome:
        """Call the handler of a message, and return the outcome, even if the handler raises."""
        attempt = received.receive_count
        # before the handler: a process that dies in it counts no failure, and would die again
        if attempt > self.max_attempts:
            reason = f"received {attempt} times, {self.max_attempts} allowed"
            return Outcome("dead", reason=reason)

        answer: BaseException | None
        try:
            answer = self._called(received)
        except BaseException as error:  # noqa: BLE001 - a worker outlives whatever a handler raises
            answer = error
        return ACK if answer is None else self.failed(received, answer)

    def failed(self, received: Received, answer: BaseException) -> Outcome:
        """Return the outcome of a message whose handler failed with `answer`."""
        attempt = received.receive_count
        reason = clean(answer.reason) if isinstance(answer, Retry | Dead) else reason_of(answer)
        # also for `Retry`: each receive counts, or a message could be put off for ever
        if isinstance(answer, Dead) or attempt >= self.max_attempts:
            return Outcome("dead", reason=reason)
        if isinstance(answer, Retry):
            return Outcome("retry", answer.delay, reason)
        delay = None if self.backoff is None else self.backoff.delay(attempt, self.rng)
        return Outcome("fail", delay, reason)

    def _called(self, received: Received) -> Retry | Dead | None:
        """Call the handler, and return its answer.

        Raises:
            InvalidInput: the answer is none that a handler gives.
        """
        answer = self.handler(received)
        if inspect.isawaitable(answer):
            answer = self.run(answer)
        if answer is None or isinstance(answer, Retry | Dead):
            return answer
        raise not_understood("handler", answer, "None, Retry(...) or Dead(...)")


def check_handler(field: str, handler: object) -> None:
    """Refuse an object that cannot handle messages.

    Raises:
        InvalidInput: it cannot be called, or a call would run nothing of it.
    """
    if not callable(handler):
        raise InvalidInput(field, "a function of one argument")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise InvalidInput(field, "a function without `yield`: a call of a generator runs nothing")


def not_understood(field: str, answer: object, expected: str) -> InvalidInput:
    """Return the error of a handler whose answer says neither that it is done nor that it failed.

    It may be a coroutine or a generator that nobody ran, or the class `Retry` without a call.
    """
    if inspect.iscoroutine(answer):
        answer.close()  # the error says it, so Python need not warn
    name = f"the class {answer.__name__}" if isinstance(answer, type) else type(answer).__name__
    return InvalidInput(field, f"{expected} as its answer, not {name}")


def _check_reason(reason: object) -> None:
    if not isinstance(reason, str):
        raise InvalidInput("reason", "text")


def reason_of(error: BaseException) -> str:
    """Return an error's class and text, in one line."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error whose text raises is an error all the same
        text = "its text cannot be had"
    name = type(error).__name__
    return clean(f"{name}: {text}" if text else name)


def clean(reason: str) -> str:
    """Return a reason in one line of at most `MAX_REASON_BYTES` of UTF-8."""
    line = _CONTROL.sub(" ", reason).strip()
    # half of a surrogate pair has no bytes in UTF-8
    data = line.encode(errors="replace")
    return data[:MAX_REASON_BYTES].decode(errors="ignore")
