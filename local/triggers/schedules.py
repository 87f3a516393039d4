"""Schedules: rules of EventBridge that invoke functions at a rate.

Invocations are asynchronous: one may begin before the last has ended, and a failed one is
retried, as Lambda retries asynchronous events.
"""

from __future__ import annotations

import json
import logging
import random
import re
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from local.triggers.properties import Properties, function_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from local.functions.invoker import Invoker, InvokeResult

log = logging.getLogger(__name__)

RULE: Final = "AWS::Events::Rule"
RETRY_PAUSES: Final = (60.0, 120.0)  # s, after the first and after the second failure
_UNITS: Final = {"minute": 60, "hour": 3600, "day": 86400}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One schedule as its resolved properties describe it.

    `period` is in seconds; `targets` are functions, each with its input as JSON text, or None.
    """

    name: str | None
    period: int
    targets: tuple[tuple[str, str | None], ...]
    enabled: bool = True

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Schedule:
        """Read the properties of a rule.

        Raises `ValueError` naming what is missing, wrong or not known.
        """
        props = Properties(RULE, properties)
        try:
            period = period_of(props.text("ScheduleExpression"))
        except ValueError as error:
            raise props.error("ScheduleExpression", f"is refused: {error}") from error
        props.ignore("Description", "RoleArn", "Tags")
        bus = props.text("EventBusName", "default")
        if bus.rsplit("/", maxsplit=1)[-1] != "default":
            raise props.error("EventBusName", f"is {bus!r}: schedules run on 'default' only")
        schedule = cls(
            name=props.text("Name", None),
            period=period,
            targets=tuple(_target(one) for one in props.groups("Targets")),
            enabled=props.choice("State", "ENABLED", among=("ENABLED", "DISABLED")) == "ENABLED",
        )
        props.close()
        return schedule


def period_of(expression: str) -> int:
    """Return the seconds between two firings; raises `ValueError` for anything but a rate."""
    match = re.fullmatch(r"rate\(([1-9]\d*) (minute|hour|day)(s?)\)", expression.strip())
    if match is None or (match[1] == "1") is bool(match[3]):
        raise ValueError(
            f"{expression!r} is not known here: 'rate(1 minute)' or 'rate(n minutes)', hours, days"
        )
    return int(match[1]) * _UNITS[match[2]]


def _target(target: Properties) -> tuple[str, str | None]:
    arn = target.text("Arn")
    if arn.startswith("arn:") and ":lambda:" not in arn:
        raise target.error("Arn", f"is {arn!r}: only functions are known here as targets")
    target.ignore("Id", "RoleArn", "RetryPolicy", "DeadLetterConfig")
    return function_of(arn), target.text("Input", None)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Region and account in the events of a schedule."""

    region: str = "us-east-1"
    account: str = "123456789012"


@dataclass
class _Firing:
    function: str
    payload: bytes
    failures: int = 0


@dataclass
class _Agenda:
    """Retries and their times, in seconds of the clock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    again: list[tuple[float, _Firing]] = field(default_factory=list)


class ScheduleTrigger:
    """Runs one schedule; at a `speed` of 60 a minute takes a second."""

    def __init__(
        self,
        name: str,
        schedule: Schedule,
        *,
        invoker: Invoker,
        rng: random.Random,
        clock: Callable[[], float],
        place: Place | None = None,
        speed: float = 1.0,
        retries: int = len(RETRY_PAUSES),
        most_at_once: int = 4,
    ) -> None:
        """`clock` gives seconds since the epoch; `retries` is 0 to 2."""
        self.name = name
        self.counts: Counter[str] = Counter()
        self._schedule = schedule
        self._invoker = invoker
        self._rng = random.Random(rng.getrandbits(64))  # noqa: S311 - no secret
        self._clock = clock
        self._place = place or Place()
        self._speed = speed
        self._retries = retries
        self._most_at_once = most_at_once
        self._agenda = _Agenda()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the clock; the first firing comes after one period."""
        if self._thread is not None or not self._schedule.enabled:
            return
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop firing and let running invocations finish."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def run_now(self) -> list[InvokeResult]:
        """Invoke all targets once in this thread; return their answers."""
        firings = self._firings()
        return [self._invoker.invoke(one.function, one.payload) for one in firings]

    def _run(self) -> None:
        began = self._clock()
        period = self._schedule.period / self._speed
        due = began + period
        with ThreadPoolExecutor(self._most_at_once, thread_name_prefix=self.name) as pool:
            while not self._stopping.is_set():
                now = self._clock()
                for firing in self._due_again(now):
                    pool.submit(self._invoke, firing)
                if due <= now:
                    for firing in self._firings():
                        pool.submit(self._invoke, firing)
                    due += period
                    continue
                self._stopping.wait(min(0.05, due - now))

    def _due_again(self, now: float) -> list[_Firing]:
        with self._agenda.lock:
            due = [firing for at, firing in self._agenda.again if at <= now]
            self._agenda.again = [entry for entry in self._agenda.again if entry[0] > now]
        return due

    def _invoke(self, firing: _Firing) -> None:
        self.counts["invocations"] += 1
        try:
            error = self._invoker.invoke(firing.function, firing.payload).function_error
        except Exception:
            log.exception("A function could not be invoked.", extra={"trigger": self.name})
            error = "Unhandled"
        if error is None:
            return
        self.counts["failures"] += 1
        if firing.failures >= self._retries:
            log.warning("A scheduled event is given up.", extra={"trigger": self.name})
            return
        at = self._clock() + RETRY_PAUSES[firing.failures] / self._speed
        with self._agenda.lock:
            self._agenda.again.append(
                (at, _Firing(firing.function, firing.payload, firing.failures + 1))
            )

    def _firings(self) -> list[_Firing]:
        return [
            _Firing(function, self._payload(given)) for function, given in self._schedule.targets
        ]

    def _payload(self, given: str | None) -> bytes:
        if given is not None:
            return given.encode()
        name = self._schedule.name or self.name
        arn = f"arn:aws:events:{self._place.region}:{self._place.account}:rule/{name}"
        now = datetime.fromtimestamp(self._clock(), UTC)
        event = {
            "version": "0",
            "id": str(uuid.UUID(int=self._rng.getrandbits(128), version=4)),
            "detail-type": "Scheduled Event",
            "source": "aws.events",
            "account": self._place.account,
            "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": self._place.region,
            "resources": [arn],
            "detail": {},
        }
        return json.dumps(event).encode()


def run_now(triggers: Iterable[object], name: str) -> list[InvokeResult]:
    """Run the schedule called `name` once now; raises `KeyError` with the known names."""
    schedules = {one.name: one for one in triggers if isinstance(one, ScheduleTrigger)}
    if name not in schedules:
        raise KeyError(f"no schedule {name!r}; there are: {', '.join(sorted(schedules))}")
    return schedules[name].run_now()
