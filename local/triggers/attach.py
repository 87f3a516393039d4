"""Triggers of an application, made from its resolved resources; unknown resources are refused."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from local.triggers.failures import OnFailure
from local.triggers.properties import Properties, function_of
from local.triggers.queues import QueueMapping, QueueTrigger
from local.triggers.reader import StreamReader
from local.triggers.schedules import RULE, Place, Schedule, ScheduleTrigger
from local.triggers.sources import EngineStream
from local.triggers.streams import KIND, StreamMapping, StreamTrigger

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Mapping

    from local.functions.invoker import Invoker

INVOKE_CONFIG: Final = "AWS::Lambda::EventInvokeConfig"
NAMESPACE: Final = uuid.UUID("5a1f0d3e-7c52-4f0c-9c39-1f6f7a4b2e10")  # of the mappings' ids


class Trigger(Protocol):
    """Something that invokes functions while it is started."""

    name: str

    def start(self) -> None:
        """Start; starting twice changes nothing."""
        ...

    def stop(self) -> None:
        """Let running invocations finish, and end."""
        ...


@dataclass(frozen=True, kw_only=True)
class TriggerSettings:
    """Settings of the triggers: shares from 0 to 1, intervals in seconds.

    `repeat_share` of the successful batches is delivered again; `shards` is the number of
    pseudo-shards of a stream; `speed` is the factor by which schedules run faster.
    """

    repeat_share: float = 0.0
    shards: int = 4
    stream_interval: float = 0.1
    queue_interval: float = 0.1
    speed: float = 1.0
    place: Place = field(default_factory=Place)


def attach(
    resources: Mapping[str, tuple[str, dict[str, Any]]],
    invoker: Invoker,
    clients: Mapping[str, Any],
    *,
    rng: random.Random,
    clock: Callable[[], float],
    function_names: Collection[str],
    settings: TriggerSettings | None = None,
) -> list[Trigger]:
    """Return the triggers of an application, not yet started.

    `resources` maps logical ids to types and resolved properties; types other than triggers are
    ignored. `clients` holds boto3 clients: `dynamodb`, `dynamodbstreams`, `sqs`, and `s3` or
    `sns` where an on-failure destination is one. `function_names` are the names that the
    invoker knows.

    Raises `ValueError` naming the logical id and the property that is not known.
    """
    workshop = _Workshop(
        resources,
        invoker,
        clients,
        rng=rng,
        clock=clock,
        settings=settings or TriggerSettings(),
    )
    triggers: list[Trigger] = []
    for logical_id, (kind, properties) in resources.items():
        try:
            made = workshop.make(logical_id, kind, properties)
            for function in made[1] if made else ():
                if function not in function_names:
                    raise ValueError(f"{kind}: the function {function!r} is not known")  # noqa: TRY301 - gets the logical id below
        except ValueError as error:
            raise ValueError(f"{logical_id}: {error}") from error
        if made:
            triggers.append(made[0])
    return triggers


class _Workshop:
    """Makes single triggers; mappings of one stream and starting position share a reader."""

    def __init__(
        self,
        resources: Mapping[str, tuple[str, dict[str, Any]]],
        invoker: Invoker,
        clients: Mapping[str, Any],
        *,
        rng: random.Random,
        clock: Callable[[], float],
        settings: TriggerSettings,
    ) -> None:
        self._invoker = invoker
        self._clients = clients
        self._rng = rng
        self._clock = clock
        self._settings = settings
        self._readers: dict[tuple[str, bool], StreamReader] = {}
        self._retries = _invoke_retries(resources)

    def make(
        self, logical_id: str, kind: str, properties: dict[str, Any]
    ) -> tuple[Trigger, list[str]] | None:
        """Return a trigger and the functions it invokes, None for another kind of resource."""
        if kind == KIND:
            if _is_queue(properties):
                return self._queue(logical_id, properties)
            return self._stream(logical_id, properties)
        if kind == RULE and "ScheduleExpression" in properties:
            return self._schedule(logical_id, properties)
        if kind == RULE:
            _refuse_function_targets(properties)
        return None

    def _stream(self, logical_id: str, properties: dict[str, Any]) -> tuple[Trigger, list[str]]:
        share = self._settings.repeat_share
        mapping = StreamMapping.from_properties(properties, repeat_share=share)
        key = (mapping.source, mapping.latest)
        if key not in self._readers:
            self._readers[key] = StreamReader(
                EngineStream(mapping.source, self._clients),
                clock=self._clock,
                region=self._settings.place.region,
                latest=mapping.latest,
                poll_interval=self._settings.stream_interval,
            )
        destination = mapping.on_failure
        trigger = StreamTrigger(
            logical_id,
            mapping,
            reader=self._readers[key],
            invoker=self._invoker,
            on_failure=OnFailure(destination, self._clients, self._rng) if destination else None,
            mapping_id=str(uuid.uuid5(NAMESPACE, logical_id)),
            rng=self._rng,
            clock=self._clock,
            shards=self._settings.shards,
        )
        return trigger, [mapping.function]

    def _queue(self, logical_id: str, properties: dict[str, Any]) -> tuple[Trigger, list[str]]:
        mapping = QueueMapping.from_properties(properties)
        trigger = QueueTrigger(
            logical_id,
            mapping,
            client=self._clients["sqs"],
            invoker=self._invoker,
            rng=self._rng,
            region=self._settings.place.region,
            repeat_share=self._settings.repeat_share,
            poll_interval=self._settings.queue_interval,
        )
        return trigger, [mapping.function]

    def _schedule(self, logical_id: str, properties: dict[str, Any]) -> tuple[Trigger, list[str]]:
        schedule = Schedule.from_properties(properties)
        functions = [function for function, _ in schedule.targets]
        trigger = ScheduleTrigger(
            logical_id,
            schedule,
            invoker=self._invoker,
            rng=self._rng,
            clock=self._clock,
            place=self._settings.place,
            speed=self._settings.speed,
            retries=min((self._retries.get(one, 2) for one in functions), default=2),
        )
        return trigger, functions


def _is_queue(properties: Mapping[str, Any]) -> bool:
    source = str(properties.get("EventSourceArn", ""))
    return source.startswith("arn:aws:sqs:") or "://" in source


def _refuse_function_targets(properties: Mapping[str, Any]) -> None:
    for target in properties.get("Targets", []):
        if ":lambda:" in str(target.get("Arn", "")):
            raise ValueError(f"{RULE}: property EventPattern is not known here for functions")


def _invoke_retries(resources: Mapping[str, tuple[str, dict[str, Any]]]) -> dict[str, int]:
    """Return the number of retries of failed asynchronous events, by function."""
    found: dict[str, int] = {}
    for logical_id, (kind, properties) in resources.items():
        if kind != INVOKE_CONFIG:
            continue
        props = Properties(f"{logical_id}: {kind}", properties)
        function = function_of(props.text("FunctionName"))
        found[function] = props.integer("MaximumRetryAttempts", 2, low=0, high=2)
        props.integer("MaximumEventAgeInSeconds", 21_600, low=60, high=21_600)
        props.ignore("Qualifier")
        props.close()
    return found
