"""The page: what the tables say, as figures, charts and rows for the template."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from pyspark.sql import functions as F

from fairbox_pipeline.report import charts, figures
from fairbox_pipeline.report.figures import MOST_TOPICS, OTHERS, Span
from fairbox_pipeline.schemas import FINDING_KINDS, PERCENTS
from fairbox_pipeline.times import COARSE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

TEMPLATE: Final = "page.html"
MOST_ROWS: Final = 100
MOST_OF_KIND: Final = 20
_MOST_BARS: Final = 20
_STATES: Final = ("delivered", "outstanding", "dead", "cancelled", "purged", "expired")
_FINDING: Final = ("kind", "topic", "epoch", "shard", "id", "subscription", "detail")
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tables:
    """The input of a page.

    Attributes:
        messages: those of its time.
        judged: the same, and those before it that are not settled.
        deliveries: the first deliveries of `messages`.
        findings, batches: as the last runs of their jobs left them.
        topics: the load of each, from job `sizing`.
        is_reconciled: whether anybody has looked for findings.
        hours: hourly latencies of the days before; None: all days are shown.
    """

    messages: DataFrame
    judged: DataFrame
    deliveries: DataFrame
    findings: DataFrame
    batches: DataFrame
    topics: Sequence[Mapping[str, Any]]
    is_reconciled: bool
    hours: DataFrame | None = None


def contents(tables: Tables) -> Values:
    """Return what the template shows, but for the advice."""
    states: Counter[str] = Counter()
    topics: Counter[str] = Counter()
    for row in tables.judged.groupBy("topic", "state").count().collect():
        states[row["state"]] += row["count"]
        topics[row["topic"]] += row["count"]
    kinds = tables.findings.groupBy("kind").count().collect()
    found = Counter({row["kind"]: row["count"] for row in kinds})
    (ends,) = tables.messages.agg(F.min("first_at"), F.max("last_at")).collect()
    span = Span.over(ends[0] or 0, ends[1] or 0)
    delivered = tables.deliveries.where(F.col("latency").isNotNull())
    coarse = not delivered.where(F.col("precision") == COARSE).isEmpty()
    batches = tables.batches.orderBy("agrees", "batch").limit(MOST_ROWS).collect()
    named = figures.named_findings(tables.findings, MOST_OF_KIND).select(*_FINDING)
    hours = None if tables.hours is None else _days_before(tables.hours)
    return {
        "verdict": _verdict(states, found, is_reconciled=tables.is_reconciled),
        "span": span,
        "is_of_a_day": tables.hours is not None,
        "messages": states.total(),
        "states": _states(states, found),
        "is_reconciled": tables.is_reconciled,
        "found": {kind: found[kind] for kind in FINDING_KINDS},
        "most_of_kind": MOST_OF_KIND,
        # the stream tells of one delivery of a message, however many there were
        "not_measured": ["duplicated"] if coarse and not found["duplicated"] else [],
        **_over_topics(tables, delivered, topics, span),
        "latency": _latencies("Latency", figures.latencies(delivered, span), span),
        "days_before": hours,
        **_skew(tables.topics),
        "subscriptions": figures.latencies_by_subscription(delivered, MOST_ROWS).collect(),
        "batches": batches,
        "items": None if batches else tables.messages.where("batch_item IS NOT NULL").count(),
        "findings": named.collect(),
    }


def render(values: Values) -> str:
    """Return the page; every text but the charts' markup is escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {
        "count": lambda n: "" if n is None else f"{n:,}",
        "moment": _moment,
        "duration": charts.duration,
        "latency": charts.latency,
    }
    template = (files(__package__) / TEMPLATE).read_text("utf-8")
    return environment.from_string(template).render(values)


def _verdict(states: Counter[str], found: Counter[str], *, is_reconciled: bool) -> str:
    """Return one sentence that says whether all is well."""
    if not states:
        return "Nothing has happened yet."
    words = {"out_of_order": "out of order", "wrong_shard": "in a wrong shard"}
    words |= {"duplicated": "delivered again"}
    kinds = ("lost", "stuck", *words)
    bad = {words.get(kind, kind): found[kind] for kind in kinds} | {"dead": states["dead"]}
    named = ", ".join(f"{n:,} {words}" for words, n in bad.items() if n)
    if not is_reconciled:
        unknown = "Whether messages are lost is not known: run job reconcile."
        return f"{unknown} Known are {named}." if named else unknown
    if named:
        return f"Not all is well. Of {states.total():,} messages: {named}."
    return f"All is well: of {states.total():,} messages none is lost."


def _states(states: Counter[str], found: Counter[str]) -> dict[str, int]:
    """Return the number of messages in the states that are shown."""
    # a lost message is in no outbox
    there = {**states, "outstanding": max(0, states["outstanding"] - found["lost"])}
    always = ("delivered", "outstanding", "dead")
    return {name: there.get(name, 0) for name in _STATES if there.get(name) or name in always}


def _over_topics(
    tables: Tables, delivered: DataFrame, topics: Counter[str], span: Span
) -> dict[str, Values]:
    """Return the charts in which topics have lines: the busiest their own, the others one."""
    busiest = sorted(topics, key=lambda topic: (-topics[topic], topic))
    named = busiest[:MOST_TOPICS]
    names = [*named, OTHERS][: len(busiest)]
    moved = figures.moves(tables.judged, span.first)

    def by_line(rows: DataFrame) -> dict[str, list[int]]:
        at = {(row["line"], row["start"]): row["value"] for row in rows.collect()}
        return {name: [at.get((name, start), 0) for start in span.starts] for name in names}

    changes = by_line(figures.outstanding(moved, named, span))
    there = {name: list(accumulate(each)) for name, each in changes.items()}
    counts = by_line(figures.throughput(delivered, named, span))
    rates = {name: [n / span.step * 1000 for n in each] for name, each in counts.items()}
    shares = _by(figures.fairness(moved, span), "start")
    index = {"Jain's index": [shares.get(start, {}).get("jain") for start in span.starts]}
    return {
        "outstanding": _over_time("Messages outstanding, by topic", span, there, stacked=True),
        "throughput": _over_time("Deliveries a second, by topic", span, rates, stacked=True),
        "fairness": _over_time("Jain's index between topics", span, index, top=1.0),
    }


def _latencies(title: str, found: DataFrame, span: Span) -> Values:
    """Draw the latencies of each step, from rows of `start`, percentiles and `precision`."""
    rows = _by(found, "start")
    precision = COARSE if any(row["precision"] for row in rows.values()) else None
    series = {
        f"p{percent}": [rows.get(start, {}).get(f"p{percent}_ms") for start in span.starts]
        for percent in PERCENTS
    }
    return _over_time(
        f"{title}: percentiles over time",
        span,
        series,
        lambda ms: charts.latency(ms, precision),
        formatter=charts.duration,
        logarithmic=True,
    )


def _days_before(hours: DataFrame) -> Values | None:
    """Draw the latencies of the days before; None: there were no deliveries."""
    (ends,) = hours.agg(F.min("hour"), F.max("hour")).collect()
    if ends[0] is None:
        return None
    span = Span.over(*ends)
    return _latencies("Latency in the days before", figures.worst_latencies(hours, span), span)


def _skew(topics: Sequence[Mapping[str, Any]]) -> Values:
    rows = sorted(topics, key=lambda row: -row["skew"])[:MOST_ROWS]
    bars = {row["topic"]: row["skew"] for row in rows[:_MOST_BARS]}
    return {"skew": Markup(charts.bars("Shard skew by topic", bars)), "topics": rows}  # noqa: S704 - escaped


def _over_time(
    title: str,
    span: Span,
    series: Mapping[str, Sequence[float | None]],
    text: Callable[[float | None], str] = charts.short,
    **options: Any,
) -> Values:
    """Return a chart with the figures behind it."""
    drawn = charts.lines(charts.clock_labels(span.starts), series, title=title, **options)
    rows = [
        [_moment(start), *(text(values[i]) for values in series.values())]
        for i, start in enumerate(span.starts)
    ]
    return {"svg": Markup(drawn), "headings": ["from", *series], "rows": rows}  # noqa: S704 - escaped


def _by(rows: DataFrame, name: str) -> dict[Any, Values]:
    """Return rows by a column."""
    return {row[name]: row.asDict() for row in rows.collect()}


def _moment(ms: int) -> str:
    return charts.calendar_time(ms).strftime("%Y-%m-%d %H:%M:%S")
