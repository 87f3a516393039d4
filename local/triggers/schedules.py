"""Schedules: rules of EventBridge and of EventBridge Scheduler that invoke functions by the clock.

Invocations are asynchronous: one may begin before the last has ended, and one that fails is tried
again, as Lambda does with events of this kind.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from local.triggers.cron import Expression, parse
from local.triggers.properties import Properties, function_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from local.invoker import Invoker, InvokeResult

log = logging.getLogger(__name__)

RULE: Final = "AWS::Events::Rule"
SCHEDULE: Final = "AWS::Scheduler::Schedule"
RETRY_PAUSES: Final = (60.0, 120.0)  # s, after the first and after the second failure


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One schedule as its resolved properties describe it.

    `targets` are functions, each with its input as JSON text, or None where none is given.
    """

    kind: str
    name: str | None
    expression: Expression
    targets: tuple[tuple[str, str | None], ...]
    enabled: bool = True
    group: str = "default"

    @classmethod
    def from_properties(cls, kind: str, properties: Mapping[str, Any]) -> Schedule:
        """Read the properties of a resource of type `kind`.

        Raises `ValueError` naming what is missing, wrong or not known.
        """
        props = Properties(kind, properties)
        expression = props.text("ScheduleExpression")
        zone = props.text("ScheduleExpressionTimezone", "UTC") if kind == SCHEDULE else "UTC"
        try:
            parsed = parse(expression, zone)
        except (ValueError, KeyError) as error:
            raise props.error("ScheduleExpression", f"is refused: {error}") from error
        props.ignore("Description", "RoleArn", "Tags", "KmsKeyArn")
        if kind == SCHEDULE:
            window = props.group("FlexibleTimeWindow")
            window.choice("Mode", "OFF", among=("OFF", "FLEXIBLE"))
            window.integer("MaximumWindowInMinutes", None, low=1, high=1440)
            targets = [props.group("Target")]
        else:
            targets = props.groups("Targets")
            bus = props.text("EventBusName", "default")
            if bus.rsplit("/", maxsplit=1)[-1] != "default":
                raise props.error("EventBusName", f"is {bus!r}: schedules run on 'default' only")
        schedule = cls(
            kind=kind,
            name=props.text("Name", None),
            expression=parsed,
            targets=tuple(_target(one) for one in targets),
            enabled=props.choice("State", "ENABLED", among=("ENABLED", "DISABLED")) == "ENABLED",
            group=props.text("GroupName", "default") if kind == SCHEDULE else "default",
        )
        props.close()
        return schedule


def _target(target: Properties) -> tuple[str, str | None]:
    arn = target.text("Arn")
    if arn.startswith("arn:") and ":lambda:" not in arn:
        raise target.error("Arn", f"is {arn!r}: only functions are known here as targets")
    target.ignore("Id", "RoleArn", "RetryPolicy", "DeadLetterConfig")
    return function_of(arn), target.text("Input", None)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a schedule's events say that they come from."""

    region: str = "us-east-1"
    account: str = "123456789012"


@dataclass
class _Firing:
    function: str
    payload: bytes
    failures: int = 0


@dataclass
class _Agenda:
    """What is to be invoked again and when, in seconds of the clock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    again: list[tuple[float, _Firing]] = field(default_factory=list)


class ScheduleTrigger:
    """Runs one schedule; `speed` lets its time pass faster: at 60 a minute takes a second."""

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
        """Start the clock: a rate fires first when its period is over."""
        if self._thread is not None or not self._schedule.enabled:
            return
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Fire no more and let the invocations under way finish."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def run_now(self) -> list[InvokeResult]:
        """Invoke all targets once, now and in this thread, and return their answers."""
        firings = self._firings()
        return [self._invoker.invoke(one.function, one.payload) for one in firings]

    def _run(self) -> None:
        began = self._clock()
        due = self._schedule.expression.next_after(datetime.fromtimestamp(began, UTC))
        with ThreadPoolExecutor(self._most_at_once, thread_name_prefix=self.name) as pool:
            while not self._stopping.is_set():
                now = self._clock()
                for firing in self._due_again(now):
                    pool.submit(self._invoke, firing)
                at = None if due is None else began + (due.timestamp() - began) / self._speed
                if due is not None and at is not None and at <= now:
                    for firing in self._firings():
                        pool.submit(self._invoke, firing)
                    due = self._schedule.expression.next_after(due)
                    continue
                self._stopping.wait(0.05 if at is None else min(0.05, at - now))

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
        now = datetime.fromtimestamp(self._clock(), UTC)
        time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        run = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        by_rule = self._schedule.kind == RULE
        resource = "rule" if by_rule else f"schedule/{self._schedule.group}"
        service = "events" if by_rule else "scheduler"
        name = self._schedule.name or self.name
        arn = f"arn:aws:{service}:{self._place.region}:{self._place.account}:{resource}/{name}"
        if given is not None and not by_rule:
            for key, value in (("scheduled-time", time), ("schedule-arn", arn)):
                given = given.replace(f"<aws.scheduler.{key}>", value)
            given = given.replace("<aws.scheduler.execution-id>", run)
            given = given.replace("<aws.scheduler.attempt-number>", "1")
        if given is not None:
            return given.encode()
        event = {
            "version": "0",
            "id": run,
            "detail-type": "Scheduled Event",
            "source": f"aws.{service}",
            "account": self._place.account,
            "time": time,
            "region": self._place.region,
            "resources": [arn],
            "detail": {} if by_rule else "{}",
        }
        return json.dumps(event).encode()


def run_now(triggers: Iterable[object], name: str) -> list[InvokeResult]:
    """Run the schedule called `name` once, at once; raises `KeyError` naming those there are."""
    schedules = {one.name: one for one in triggers if isinstance(one, ScheduleTrigger)}
    if name not in schedules:
        raise KeyError(f"no schedule {name!r}; there are: {', '.join(sorted(schedules))}")
    return schedules[name].run_now()
