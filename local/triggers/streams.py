"""Event source mappings of DynamoDB streams: lanes that invoke a function batch by batch."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zlib import crc32

from local.triggers.answers import Failure, stream_failure
from local.triggers.batches import Batch, BatchRules, GivenUp, Lane, lane_number
from local.triggers.failures import OnFailure, Origin
from local.triggers.filters import Matcher, compile_criteria
from local.triggers.properties import Properties, function_of
from local.triggers.records import StreamRecord, payload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local.functions.invoker import Invoker
    from local.triggers.reader import Entry, StreamReader

log = logging.getLogger(__name__)

T = TypeVar("T")
KIND: Final = "AWS::Lambda::EventSourceMapping"
_TOLD_AGAIN: Final = 5


@dataclass(frozen=True, kw_only=True)
class StreamMapping:
    """A stream's event source mapping, read from its resolved properties."""

    source: str
    function: str
    function_arn: str
    rules: BatchRules
    latest: bool = False
    factor: int = 1
    report: bool = False
    enabled: bool = True
    matcher: Matcher | None = None
    on_failure: str | None = None

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, Any], *, repeat_share: float = 0.0
    ) -> StreamMapping:
        """Read the properties; raises `ValueError` naming one that is missing, wrong or unknown."""
        props = Properties(KIND, properties)
        function = props.text("FunctionName")
        retries = props.integer("MaximumRetryAttempts", -1, low=-1, high=10_000)
        age = props.integer("MaximumRecordAgeInSeconds", -1, low=-1, high=604_800)
        if 0 <= age < 60:
            raise props.error("MaximumRecordAgeInSeconds", f"is {age}: expected -1 or 60 and more")
        destination = props.group("DestinationConfig").group("OnFailure").text("Destination", None)
        window = props.integer("MaximumBatchingWindowInSeconds", 0, low=0, high=300)
        mapping = cls(
            source=props.text("EventSourceArn"),
            function=function_of(function),
            function_arn=function,
            latest=props.choice("StartingPosition", among=("TRIM_HORIZON", "LATEST")) == "LATEST",
            factor=props.integer("ParallelizationFactor", 1, low=1, high=10),
            report=reports_failures(props),
            enabled=props.flag("Enabled", True),
            matcher=compile_criteria(props.group("FilterCriteria")),
            on_failure=destination,
            rules=BatchRules(
                batch_size=props.integer("BatchSize", 100, low=1, high=10_000),
                window=float(window),
                max_retries=None if retries < 0 else retries,
                max_age=None if age < 0 else float(age),
                bisect=props.flag("BisectBatchOnFunctionError", False),
                repeat_share=repeat_share,
            ),
        )
        props.integer("TumblingWindowInSeconds", 0, low=0, high=0)
        props.ignore("Tags", "KmsKeyArn", "MetricsConfig")
        props.close()
        return mapping


def reports_failures(props: Properties) -> bool:
    """Return whether `FunctionResponseTypes` asks for partial answers."""
    types = props.value("FunctionResponseTypes", [])
    if types not in ([], ["ReportBatchItemFailures"]):
        raise props.error("FunctionResponseTypes", f"is {types!r}: not known")
    return bool(types)


@dataclass
class _Runner:
    """One lane with the lock of its state and the name of its pseudo-shard."""

    lane: Lane
    shard_id: str
    changed: threading.Condition = field(default_factory=threading.Condition)


class StreamTrigger:
    """Runs one mapping: a thread for each lane, fed by the reader of the stream.

    A stopped trigger keeps its position and its records, as a disabled mapping does.
    """

    def __init__(
        self,
        name: str,
        mapping: StreamMapping,
        *,
        reader: StreamReader,
        invoker: Invoker,
        on_failure: OnFailure | None,
        mapping_id: str,
        rng: random.Random,
        clock: Callable[[], float],
        shards: int = 4,
    ) -> None:
        """`clock` gives seconds since the epoch; `shards` is the number of pseudo-shards."""
        self.name = name
        self._mapping = mapping
        self._reader = reader
        self._invoker = invoker
        self._on_failure = on_failure
        self._mapping_id = mapping_id
        self._clock = clock
        self._shards = shards
        self._runners = {
            (shard, part): _Runner(
                Lane(mapping.rules, random.Random(rng.getrandbits(64))),  # noqa: S311 - no secret
                f"shardId-{shard:020d}-{crc32(f'{mapping.source}/{shard}'.encode()):08x}",
            )
            for shard in range(shards)
            for part in range(mapping.factor)
        }
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        reader.add(self)

    def start(self) -> None:
        """Start to deliver; raises `StreamUnavailableError` if the stream does not answer."""
        if self._threads or not self._mapping.enabled:
            return
        self._stopping.clear()
        for runner in self._runners.values():
            thread = threading.Thread(
                target=self._run, args=(runner,), name=f"{self.name}-{runner.shard_id}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        self._reader.start(self)

    def stop(self) -> None:
        """Finish running invocations and stop; the other records stay outstanding."""
        self._stopping.set()
        self._reader.stop(self)
        for runner in self._runners.values():
            with runner.changed:
                runner.changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def hear(self, entries: Sequence[Entry]) -> None:
        """Filter records and pass them to their lanes."""
        now = self._clock()
        matcher = self._mapping.matcher
        sorted_out: dict[tuple[int, int], list[tuple[StreamRecord, bool]]] = {}
        for record, event in entries:
            number = lane_number(record, shards=self._shards, factor=self._mapping.factor)
            wanted = matcher is None or matcher(event)
            sorted_out.setdefault(number, []).append((record, wanted))
        for number, records in sorted_out.items():
            runner = self._runners[number]
            with runner.changed:
                for record, wanted in records:
                    if wanted:
                        runner.lane.offer(record, now)
                    else:
                        runner.lane.skip(record.order)
                runner.changed.notify()

    @property
    def outstanding(self) -> int:
        """Number of records received and not yet finished."""
        return sum(self._each(lambda lane: lane.outstanding))

    def iterator_age(self) -> float:
        """Seconds since the oldest outstanding record was written, over all pseudo-shards."""
        now = self._clock()
        return max(self._each(lambda lane: lane.iterator_age(now)), default=0.0)

    @property
    def counts(self) -> Counter[str]:
        """Numbers of invocations, failures, repeats, filtered and given-up records so far."""
        return sum(self._each(lambda lane: Counter(lane.counts)), Counter())

    def _each(self, look: Callable[[Lane], T]) -> list[T]:
        found: list[T] = []
        for runner in self._runners.values():
            with runner.changed:
                found.append(look(runner.lane))
        return found

    def _run(self, runner: _Runner) -> None:
        while (work := self._wait(runner)) is not None:
            if isinstance(work, GivenUp):
                self._report(runner, work)
                continue
            failure = self._invoke(work)
            with runner.changed:
                given_up = runner.lane.finish(work, failure, self._clock())
            if given_up is not None:
                self._report(runner, given_up)

    def _wait(self, runner: _Runner) -> Batch | GivenUp | None:
        """Wait for work of a lane; None when the trigger stops."""
        with runner.changed:
            while not self._stopping.is_set():
                now = self._clock()
                work = runner.lane.take(now)
                if work is not None:
                    return work
                wake_at = runner.lane.wake_at()
                pause = 1.0 if wake_at is None else min(1.0, max(0.001, wake_at - now))
                runner.changed.wait(pause)
        return None

    def _invoke(self, batch: Batch) -> Failure | None:
        event = payload([record.body for record in batch.records])
        try:
            result = self._invoker.invoke(self._mapping.function, event)
        except Exception:
            log.exception("A function could not be invoked.", extra={"trigger": self.name})
            return Failure(counts=False)
        numbers = [record.sequence_number for record in batch.records]
        return stream_failure(result, numbers, report=self._mapping.report)

    def _report(self, runner: _Runner, given_up: GivenUp) -> None:
        """Report to the on-failure destination; retry several times."""
        fields = {"trigger": self.name, "records": len(given_up.batch.records)}
        log.warning("A batch is given up.", extra=fields | {"condition": given_up.condition})
        if self._on_failure is None:
            return
        origin = Origin(
            mapping_id=self._mapping_id,
            function_arn=self._mapping.function_arn,
            stream_arn=self._reader.source.arn,
            shard_id=runner.shard_id,
        )
        for turn in range(_TOLD_AGAIN):
            try:
                self._on_failure.send(given_up, origin, self._clock())
            except Exception:
                log.exception("The on-failure destination took no report.", extra=fields)
                self._stopping.wait(0.2 * 2**turn)
            else:
                return
