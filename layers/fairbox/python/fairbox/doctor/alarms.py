"""Checks of what watches, and of what is watched: alarms, lag of the streams, the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.doctor.aws import NotAnswered
from fairbox.doctor.examined_deployment import ALARM, PERIOD, Deployment, figure_of
from fairbox.doctor.findings import Finding, Reporter, check
from fairbox.doctor.functions import STREAMS
from fairbox.observability.metrics import (
    ARCHIVE_BYPASSED,
    ARCHIVE_WAITING,
    NAMESPACE,
    OLDEST_AGE,
    SERVICE,
)
from fairbox.settings import ARCHIVE_STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


BEHIND_MS: Final = 60_000
"""Age of a stream's oldest unread record from which its reader is behind."""
LOST_MS: Final = 3_600_000
"""Age from which it will not catch up by itself: after a day records are lost."""
OLD_SECONDS: Final = 300
HEARTBEATS: Final = ("relay", "mark_delivered", "cascade_batches")
"""Readers of the streams to which `count_outstanding` writes each minute."""
MARKING: Final = "mark_delivered"
FULL: Final = 0.7
"""Share of its quota from which a stream soon throttles: a minute's mean hides its peaks."""
_DAY_MS: Final = 86_400_000
_REPAIRED_MS: Final = 3_900_000  # repair counts each hour what it could not move
_MIB: Final = 1024 * 1024
_MORE: Final = (
    "Ask for a higher Direct PUT quota of Amazon Data Firehose (Service Quotas); or leave it: what "
    "it does not take goes past it, at one S3 request an invocation."
)
_ALARMS_A_CALL: Final = 100
_SPAN_MS: Final = 600_000


@check("alarms", "Alarms are there, and silent")
def alarms(deployment: Deployment) -> Iterator[Finding]:
    """Every alarm of the stacks exists, may act, and is not in ALARM."""
    resources = deployment.resources(ALARM)
    there: dict[str, Any] = {}
    names = [resource.name for resource in resources]

    for start in range(0, len(names), _ALARMS_A_CALL):
        part = names[start : start + _ALARMS_A_CALL]
        answer = deployment.aws.ask(
            "cloudwatch", "describe_alarms", AlarmNames=part, MaxRecords=_ALARMS_A_CALL
        )
        there |= {alarm["AlarmName"]: alarm for alarm in answer["MetricAlarms"]}

    bad = (
        finding
        for one in resources
        for finding in _alarm(Reporter("alarms", one.logical), one.name, there.get(one.name))
    )
    yield from Reporter("alarms", f"{len(resources)} alarms").bad_or_ok(bad)


def _alarm(report: Reporter, name: str, alarm: Mapping[str, Any] | None) -> Iterator[Finding]:
    if alarm is None:
        yield report.fail(f"alarm {name} was deleted", "Deploy its stack again: nobody is told.")
        return

    # somebody may have silenced it for a deployment and forgotten
    if not alarm["ActionsEnabled"] or not alarm["AlarmActions"]:
        yield report.warn(
            "it tells nobody", f"aws cloudwatch enable-alarm-actions --alarm-names {name}"
        )

    if alarm["StateValue"] == "ALARM":
        yield report.fail(
            f"it is in ALARM: {alarm.get('AlarmDescription', '')}",
            "docs/how-to/runbook.md says what to do for each alarm.",
        )


@check("lag", "Streams are read as they are written")
def lag(deployment: Deployment) -> Iterator[Finding]:
    """Nobody is behind.

    In the last ten minutes the stream functions were started, the oldest record that one of them
    met was under a minute old, and the oldest outstanding message under five.
    """
    try:
        names = {role: f.name for role, f in deployment.functions.items() if role in STREAMS}
    except NotAnswered as error:
        # without the stacks, the age of the oldest message is asked for all the same
        names = {}
        yield Reporter("lag", ", ".join(STREAMS)).unknown(str(error), error.advice)

    queries = [
        figure_of(f"a{n}", "AWS/Lambda", "IteratorAge", "Maximum", {"FunctionName": name})
        for n, name in enumerate(names.values())
    ]
    of_all = {"service": SERVICE}
    queries.append(figure_of("oldest", deployment.name, OLDEST_AGE, "Maximum", of_all))

    figures = deployment.figures(_SPAN_MS, *queries)
    # None: no period has a value, as the function was not started
    values = {name: max(some, default=None) for name, some in figures.items()}
    for n, role in enumerate(names):
        # locally nothing takes the functions' metrics
        beats = role in HEARTBEATS and not deployment.local
        yield _behind(Reporter("lag", role), values.get(f"a{n}"), beats=beats)

    if not deployment.local:  # where nothing takes the functions' metrics
        yield _oldest(Reporter("lag", "oldest message"), values.get("oldest"))


def _behind(report: Reporter, age: float | None, *, beats: bool) -> Finding:
    if age is None and beats:
        return report.fail(
            "it was not started for ten minutes, though a heartbeat is written each minute",
            "Look whether its trigger is enabled, and whether count_outstanding runs.",
        )
    if age is None:
        return report.ok("it was not started for ten minutes: nothing was written")

    detail = f"its oldest record was {age / 1000:.0f} s old"
    if age >= LOST_MS:
        return report.fail(detail, "Records are lost after a day: read the function's log, correct "
                           "it, and raise its concurrency or its batch.")  # fmt: skip
    if age >= BEHIND_MS:
        return report.warn(detail, "Look whether the function fails or is throttled.")
    return report.ok(detail)


def _oldest(report: Reporter, age: float | None) -> Finding:
    if age is None:
        return report.warn(
            "nobody has counted for ten minutes",
            "Look at function count_outstanding and at its rule; on a new deployment, wait.",
        )
    if age >= OLD_SECONDS:
        return report.warn(
            f"it was {age:.0f} s old",
            "fairbox outbox outstanding names it; fairbox subscription list says who lacks it.",
        )
    return report.ok(f"it was {age:.0f} s old at most")


@check("archive", "The archive takes what comes")
def archive(deployment: Deployment) -> Iterator[Finding]:
    """In the last day, the stream took less than 70 % of its quota, and nothing went past it.

    Nothing waits for the archive's bucket. Bytes are means of five minutes.
    """
    marking = deployment.functions.get(MARKING)
    stream = marking.environment.get(ARCHIVE_STREAM) if marking else None
    if not stream:
        yield Reporter("archive", "stream").unknown(
            f"function {MARKING} does not name it", "Deploy the stacks again: cdk deploy --all."
        )
        return

    of_stream, of_all = {"DeliveryStreamName": stream}, {"service": SERVICE}
    values = deployment.figures(
        _DAY_MS,
        figure_of("bytes", "AWS/Firehose", "IncomingBytes", "Sum", of_stream),
        figure_of("quota", "AWS/Firehose", "BytesPerSecondLimit", "Maximum", of_stream),
        figure_of("throttled", "AWS/Firehose", "ThrottledRecords", "Sum", of_stream),
        figure_of("bypassed", NAMESPACE, ARCHIVE_BYPASSED, "Sum", of_all),
    )

    # repair writes this figure each hour: a day's maximum would tell of objects moved long ago
    waiting = figure_of("waiting", NAMESPACE, ARCHIVE_WAITING, "Maximum", of_all)
    values |= deployment.figures(_REPAIRED_MS, waiting)

    yield _stream(Reporter("archive", f"stream {stream}"), values)
    yield _past(Reporter("archive", "past the stream"), values)
    yield _waiting(Reporter("archive", "archive's bucket"), values)


def _stream(report: Reporter, values: Mapping[str, list[float]]) -> Finding:
    # Firehose writes its metrics only where something was put
    if not values["bytes"] or not values["quota"]:
        return report.ok("nothing was put for a day")
    # the quota may have been raised within the day: the newest value is in force
    rate, quota = max(values["bytes"]) / PERIOD, values["quota"][0]
    detail = f"it took {rate / _MIB:.2f} of {quota / _MIB:.2f} MiB/s"
    throttled = sum(values["throttled"])
    if throttled:
        return report.warn(f"{detail}, and throttled {throttled:.0f} records", _MORE)
    if rate >= FULL * quota:
        return report.warn(detail, _MORE)
    return report.ok(detail)


def _past(report: Reporter, values: Mapping[str, list[float]]) -> Finding:
    lines = sum(values["bypassed"])
    if lines:
        return report.warn(
            f"{lines:.0f} lines went past it: none is lost",
            f"The log of {MARKING} says why: `lines go past Firehose`. If throttled: {_MORE}",
        )
    return report.ok("no line")


def _waiting(report: Reporter, values: Mapping[str, list[float]]) -> Finding:
    objects = max(values["waiting"], default=0)
    if objects:
        return report.fail(
            f"{objects:.0f} objects waited for it within the last hour",
            "Correct its policy, its key or the role of the function: the log of repair says what "
            "S3 answers. Repair moves them each hour; none is lost, none expires.",
        )
    return report.ok("nothing waited for it")
