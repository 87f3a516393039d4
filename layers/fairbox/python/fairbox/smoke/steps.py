"""Steps of a smoke test: the expected effects, and the results."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

Status = Literal["ok", "failed", "not tried"]

DESTINATIONS: Final = ("sqs", "sns", "events", "kinesis", "lambda", "https", "topic")
"""Kinds of destinations, by the schemes of their addresses."""
OTHERS: Final = ("delayed", "dead letter", "batch", "clean-up")
"""The steps beside them."""


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step.

    Attributes:
        name: a kind of destination, or one of `OTHERS`.
        status: `not tried`: it lacks something that only the caller can give.
        seconds: from the call that began it until its effect was seen; None where there is none.
        detail: the state seen instead, or the missing option.
    """

    name: str
    status: Status
    seconds: float | None = None
    detail: str = ""

    def fields(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return asdict(self)


@dataclass(slots=True)
class Expectation:
    """Something that a step waits for.

    Attributes:
        since: when it began, in seconds since 1970.
        seen: whether the effect is there; raises `FairboxError` where it can never be.
        why_not: says where the message is instead.
    """

    name: str
    since: float
    seen: Callable[[], bool]
    why_not: Callable[[], str]
