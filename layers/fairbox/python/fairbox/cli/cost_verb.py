"""`fairbox cost`: a month of a load in dollars, by the meter's figures and list prices."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fairbox.cli.session import Session  # noqa: TC001 - the verb's parameters are read
from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS: Final = 730 * 3600
"""Seconds of AWS's month."""
_ENVELOPE: Final = 160  # bytes of an item beside its body; a message at SQS has some 600
_OFFLOADED: Final = 300_000
_PACKED: Final = 0.22  # of a body's bytes in the archive: JSON, compressed
_GB: Final = 1e9
# list prices of us-east-1 in November 2026, on demand, arm64, without free tiers
_WRITES, _READS = 0.625e-6, 0.125e-6
_GB_SECOND, _INVOCATION = 13.3334e-6, 0.2e-6
_SQS, _SQS_FIFO, _LOGS, _FIREHOSE = 0.4e-6, 0.5e-6, 0.5, 0.029
_S3_PUT, _S3_GET, _S3_GB = 5e-6, 0.4e-6, 0.023
_GATEWAY, _METRIC = 1e-6, 0.3
_VCPU_SECOND: Final = 0.0757 / 3600  # of EMR Serverless, with 4 GB of memory
AT_REST: Final = 12.2  # alarms, dashboard, metrics of the totals, polls of queues, schedules


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a message of up to 1 KB to one queue, as the meter counts it on the code.

    Attributes:
        rate: messages a second.
        recording: WRU of ledger, counts and indexes.
        reads: RRU.
        invocations: batches of the stream that `relay` gets.
        sends: calls to the queue.
    """

    rate: float
    recording: float
    reads: float
    invocations: float
    sends: float


USES: Final = (
    Use(1, 0.43, 1.44, 0.775, 0.965),
    Use(10, 0.067, 0.34, 0.255, 0.745),
    Use(100, 0.04, 0.047, 0.033, 0.171),
    Use(1000, 0.038, 0.009, 0.003, 0.107),
)
"""Between two of them, figures are interpolated by logarithms; beyond, the last one holds."""


def use_at(rate: float) -> Use:
    """Return the use of a message at a rate."""
    above = next((use for use in USES if use.rate >= rate), USES[-1])
    below = next((use for use in reversed(USES) if use.rate <= rate), USES[0])
    part = 0.0 if above is below else math.log(rate / below.rate, above.rate / below.rate)

    low, high = astuple(below), astuple(above)
    return Use(*(a ** (1 - part) * b**part for a, b in zip(low, high, strict=True)))


def month(
    rate: float,
    *,
    size: int = 700,
    queues: int = 1,
    webhooks: int = 0,
    topics: int = 1,
    row: int = 1024,
    http: bool = False,
) -> Iterator[tuple[str, str, float]]:
    """Yield what a month costs: service, use and dollars.

    Args:
        rate: messages a second, on average.
        size: bytes of a body as it is stored.
        queues: subscriptions of each topic at SQS.
        webhooks: its subscriptions at webhooks and functions.
        topics: how many; the twenty busiest have metrics of their own.
        row: bytes of your own row in the transaction; 0: no transaction.
        http: messages come over the HTTP API, without a transaction.
    """
    messages = rate * SECONDS
    use = use_at(rate)
    offloaded = size > _OFFLOADED
    # an offloaded body leaves a small item: its reference
    units = 1 if offloaded else math.ceil((size + _ENVELOPE) / 1024)
    in_transaction = row > 0 and not http

    written = units * (2 if in_transaction else 1)
    deleted = units * (2 if queues and webhooks else 1)  # with both, relay marks who lacks it
    writes = written + deleted + use.recording * (1 + 0.7 * (queues + webhooks - 1))
    yield "DynamoDB", f"{writes:.2f} write units a message", messages * writes * _WRITES
    # a visit reads the message by key; the relay has it from the stream, for nothing
    reads = use.reads + (math.ceil(units / 4) if webhooks else 0)
    yield "DynamoDB", f"{reads:.2f} read units a message", messages * reads * _READS
    if in_transaction:
        # the row itself costs as much without an outbox; only its second half is due to it
        doubled = math.ceil(row / 1024)
        yield "DynamoDB", "your own row, which a transaction doubles", messages * doubled * _WRITES

    relay = _function(0.05, 0.5) + 350 / _GB * _LOGS
    yield "Lambda, logs", "relay", messages * use.invocations * relay
    yield "Lambda", "mark_delivered", 0.2 * SECONDS * _function(0.1, 1)
    # SQS bills each started 64 KB of a call as a request
    calls = queues * max(use.sends, (size + 600) / 65_536)
    yield "SQS", f"{calls:.2f} calls a message", messages * calls * _SQS

    if webhooks:
        visits = messages * min(1, 8 * use.invocations)  # a batch rings for each of its shards
        yield "Lambda", "deliver_shard", messages * webhooks * _function(0.1, 0.5)
        yield "SQS", "doorbells", visits * 3 * _SQS_FIFO

    packed = messages * min(size, _OFFLOADED) * _PACKED / _GB
    yield "Firehose, S3", f"archive, {packed:.1f} GB", packed * (_FIREHOSE + _S3_GB)
    yield "EMR Serverless", "pipeline's daily run", messages * 0.5e-3 * _VCPU_SECOND
    if offloaded:
        stored = messages * size / _GB * _S3_GB
        fetched = (queues + webhooks) * _S3_GET
        yield "S3", "bodies", messages * (_S3_PUT + fetched) + stored
    if http:
        request = _GATEWAY + _function(0.03, 0.5) + 450 / _GB * _LOGS
        yield "API Gateway, Lambda", "HTTP API", messages * request
    yield "CloudWatch", "metrics of topics", 6 * min(topics, 20) * _METRIC
    yield "CloudWatch, SQS, Lambda", "at rest", AT_REST


def _function(seconds: float, gigabytes: float) -> float:
    return seconds * gigabytes * _GB_SECOND + _INVOCATION


def cost(
    session: Session,
    *,
    rate: Annotated[float, typer.Option(min=0.01, max=1e6, metavar="N", help="Messages a second.")],
    size: Annotated[
        int, typer.Option(min=0, max=64 * 1024**2, metavar="BYTES", help="Of a body, as stored.")
    ] = 700,
    queues: Annotated[int, typer.Option(min=0, max=100, help="Subscriptions at SQS.")] = 1,
    webhooks: Annotated[int, typer.Option(min=0, max=100, help="Or functions.")] = 0,
    topics: Annotated[int, typer.Option(min=1, help="The busiest have metrics.")] = 1,
    row: Annotated[
        int, typer.Option(min=0, metavar="BYTES", help="Of your own; 0: no transaction.")
    ] = 1024,
    http: Annotated[bool, typer.Option("--http", help="Messages come over the HTTP API.")] = False,
) -> None:
    """Compute what a month of a load costs, by service, in dollars of us-east-1.

    Units are those that the meter counts on the code; durations are assumed. Free tiers, your
    consumers, data transfer and storage of what waits are not in it.
    """
    if not queues + webhooks:
        raise InvalidInput("queues", "one or more, or webhooks: pulled topics are not computed")

    lines = list(
        month(rate, size=size, queues=queues, webhooks=webhooks, topics=topics, row=row, http=http)
    )
    total = sum(usd for _, _, usd in lines)

    fields = {
        "usd_a_month": round(total, 2),
        "lines": [
            {"service": service, "use": use, "usd": round(usd, 2)} for service, use, usd in lines
        ],
    }

    text = [f"{usd:>10,.2f}  {service}: {use}" for service, use, usd in lines]
    million = total / (rate * SECONDS) * 1e6
    text.append(f"{total:>10,.2f}  dollars a month, {million:.2f} a million messages")
    session.show(fields, "\n".join(text))
