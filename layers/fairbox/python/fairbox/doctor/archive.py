"""Check of the archive: what its stream takes beside its quota, what goes past it, what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.doctor.examined_deployment import PERIOD, figure_of
from fairbox.doctor.findings import Reporter, check
from fairbox.observability.metrics import ARCHIVE_BYPASSED, ARCHIVE_WAITING, NAMESPACE, SERVICE
from fairbox.settings import ARCHIVE_STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairbox.doctor.examined_deployment import Deployment
from fairbox.doctor.findings import Finding

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
