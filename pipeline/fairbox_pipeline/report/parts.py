"""The parts of the report: each answers one question from the tables and draws it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.report import charts, figures
from fairbox_pipeline.report.figures import MOST_TOPICS, OTHERS, Span
from fairbox_pipeline.report.page import Headline, Part, Table
from fairbox_pipeline.schemas import PERCENTS
from fairbox_pipeline.times import COARSE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    Row = dict[str, Any]

MOST_ROWS: Final = 100
MOST_OF_KIND: Final = 20
_MOST_BARS: Final = 20
_STATES: Final = ("delivered", "outstanding", "dead", "cancelled", "purged", "expired")
_NAMED: Final = 60
_BAD: Final = {
    "lost": "lost",
    "stuck": "stuck",
    "out_of_order": "out of order",
    "wrong_shard": "in a wrong shard",
    "duplicated": "delivered again",
}
_NOT_MEASURED: Final = "not measured: see the consumers' inbox"


@dataclass(frozen=True, slots=True)
class Tables:
    """What a report is made of.

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


class Report:
    """Reads the tables once for each part."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._states: Counter[str] = Counter()
        topics: Counter[str] = Counter()
        for row in tables.judged.groupBy("topic", "state").count().collect():
            self._states[row["state"]] += row["count"]
            topics[row["topic"]] += row["count"]
        self._messages = self._states.total()
        busiest = sorted(topics, key=lambda topic: (-topics[topic], topic))
        self._named = busiest[:MOST_TOPICS]
        self._lines = [*self._named, OTHERS][: len(busiest)]
        self._found = Counter(
            {row["kind"]: row["count"] for row in tables.findings.groupBy("kind").count().collect()}
        )
        self._delivered = tables.deliveries.where(F.col("latency").isNotNull())
        (ends,) = tables.messages.agg(F.min("first_at"), F.max("last_at")).collect()
        self.span = Span.over(ends[0] or 0, ends[1] or 0)
        self._moves = figures.moves(tables.judged, self.span.first)
        self._labels = charts.clock_labels(self.span.starts)

    def about(self) -> str:
        """Return a sentence about the time and figures of the page."""
        if not self._messages:
            return "There is no message in the tables."
        older = "; what is outstanding or dead is counted since whenever it was added"
        return (
            f"From {_moment(self.span.first)} to {_moment(self.span.last)} (UTC), in steps of "
            f"{charts.duration(self.span.step)}{'' if self._tables.hours is None else older}. "
            "Times are those of the events, whose clocks may differ; deliveries are stamped by the "
            "second."
        )

    def verdict(self) -> str:
        """Return one sentence that says whether all is well."""
        if not self._messages:
            return "Nothing has happened yet."
        bad = {words: self._found[kind] for kind, words in _BAD.items()}
        bad["dead"] = self._states["dead"]
        named = ", ".join(f"{_count(n)} {words}" for words, n in bad.items() if n)
        if not self._tables.is_reconciled:
            unknown = "Whether messages are lost is not known: run job reconcile."
            return f"{unknown} Known are {named}." if named else unknown
        if named:
            return f"Not all is well. Of {_count(self._messages)} messages: {named}."
        return f"All is well: of {_count(self._messages)} messages none is lost."

    def headline(self) -> list[Headline]:
        """The figures at the top."""
        # a lost message is in no outbox
        there = max(0, self._states["outstanding"] - self._found["lost"])
        states = {**self._states, "outstanding": there}
        shown = [Headline("messages", _count(self._messages))]
        shown += [
            Headline(state, _count(n), "bad" if state == "dead" and n else "")
            for state in _STATES
            if (n := states.get(state, 0)) or state in ("delivered", "outstanding", "dead")
        ]
        if not self._tables.is_reconciled:
            return shown
        # the stream tells of one delivery of a message, however many there were
        coarse = not self._delivered.where(F.col("precision") == COARSE).isEmpty()
        for kind in _BAD:
            n = self._found[kind]
            name = kind.replace("_", " ")
            if n or kind != "duplicated" or not coarse:
                shown.append(Headline(name, _count(n), "bad" if n else "good"))
            else:
                shown.append(Headline(name, _NOT_MEASURED, "words"))
        return shown

    def parts(self) -> list[Part]:
        """Every part, in the order of the page."""
        return [
            self._outstanding(),
            self._throughput(),
            self._latency(),
            *self._days_before(),
            self._fairness(),
            self._shards(),
            self._by_subscription(),
            self._batches(),
            self._findings(),
        ]

    def _outstanding(self) -> Part:
        changes = self._by_line(figures.outstanding(self._moves, self._named, self.span))
        series = {name: list(accumulate(each)) for name, each in changes.items()}
        about = "Messages added and not yet delivered to everybody, at the end of each step."
        title = "Messages outstanding, by topic"
        chart = charts.lines(self._labels, series, title=title, stacked=True)
        return Part("Outstanding over time", about, chart, _times(self.span, series, charts.short))

    def _throughput(self) -> Part:
        counts = self._by_line(figures.throughput(self._delivered, self._named, self.span))
        seconds = self.span.step / 1000
        series = {name: [n / seconds for n in each] for name, each in counts.items()}
        about = "Deliveries a second: first deliveries of a message to a subscription."
        title = "Deliveries a second, by topic"
        chart = charts.lines(self._labels, series, title=title, stacked=True)
        return Part("Throughput", about, chart, _times(self.span, series, charts.short))

    def _latency(self) -> Part:
        about = (
            "From due (added, or the end of its delay) to first delivered, percentiles of each "
            "step, on a logarithmic scale. Of deliveries that are stamped by the second, less "
            "than a second is drawn as one."
        )
        return _percentiles(
            "Latency", about, figures.latencies(self._delivered, self.span), self.span
        )

    def _days_before(self) -> list[Part]:
        """Return the part about the latencies of the days before; none, if all days are shown."""
        hours = self._tables.hours
        ends = None if hours is None else hours.agg(F.min("hour"), F.max("hour")).collect()[0]
        if hours is None or ends is None or ends[0] is None:
            return []
        span = Span.over(*ends)
        about = "The worst hour of the worst subscription in each step, from table latency_hourly."
        worst = figures.worst_latencies(hours, span)
        return [_percentiles("Latency in the days before", about, worst, span)]

    def _fairness(self) -> Part:
        rows = _by(figures.fairness(self._moves, self.span), "start")
        series = {"Jain's index": [rows.get(start, {}).get("jain") for start in self.span.starts]}
        return Part(
            "Fairness between topics",
            "Jain's index of the shares of their work that topics got delivered, in steps where "
            "two topics or more had any: 1 is all alike, 1/n is one of n served alone.",
            charts.lines(self._labels, series, title="Jain's index between topics", top=1.0),
            _times(self.span, series, lambda v: "" if v is None else f"{v:.3f}"),
        )

    def _shards(self) -> Part:
        topics = sorted(self._tables.topics, key=lambda row: -row["skew"])[:MOST_ROWS]
        bars = topics[:_MOST_BARS]
        headings = ["topic", "messages", "shards", "needed", "WRU/s", "skew", "hot key"]
        rows = [
            [
                row["topic"],
                *(_count(row[name]) for name in ("messages", "shards", "shards_needed")),
                f"{row['units_per_second']:,.1f}",
                f"{row['skew']:.2f}",
                row["hot_key"] or "",
            ]
            for row in topics
        ]
        return Part(
            "Shard skew",
            "Messages of the fullest shard by the mean over a topic's shards, in its newest epoch: "
            "1 is even. What is over 2 has a hot key, or few messages.",
            charts.bars(
                [_cut(row["topic"]) for row in bars],
                [row["skew"] for row in bars],
                name="skew",
                title="Shard skew by topic",
            ),
            Table("Shards by topic", headings, rows, frozenset(range(1, 6))),
        )

    def _by_subscription(self) -> Part:
        found = figures.latencies_by_subscription(self._delivered, MOST_ROWS).collect()
        names = (*(f"p{percent}" for percent in PERCENTS), "max")
        rows = [
            [
                row["topic"],
                row["subscription"] or "",
                _count(row["count"]),
                *(charts.latency(row[f"{name}_ms"], row["precision"]) for name in names),
            ]
            for row in found
        ]
        headings = ["topic", "subscription", "deliveries", *names]
        return Part(
            "Latency by subscription",
            "Over the whole time, the busiest first.",
            table=Table(
                "Latency by topic and subscription", headings, rows, frozenset(range(2, 7))
            ),
            nothing="Nothing was delivered.",
            wide=True,
        )

    def _batches(self) -> Part:
        counts = ("items_seen", "acked", "failed", "pending")
        agreement = {True: "yes", False: "no", None: ""}
        rows = [
            [
                row["batch"],
                *(_count(row[name]) for name in counts),
                _tracker(row["tracker"]),
                agreement[row["agrees"]],
            ]
            for row in self._tables.batches.orderBy("agrees", "batch").limit(MOST_ROWS).collect()
        ]
        headings = ["batch", *(name.replace("_", " ") for name in counts), "tracker", "agrees"]
        nothing = "No message carries a batch item."
        if not rows and (items := self._tables.messages.where("batch_item IS NOT NULL").count()):
            nothing = f"Job batches has not run yet: {items:,} of the messages carry batch items."
        return Part(
            "Batches",
            "Progress rebuilt from the history, beside what the trackers said to the last run of "
            "job batches. Those that differ come first.",
            table=Table("Batches", headings, rows, frozenset(range(1, 5))),
            nothing=nothing,
            wide=True,
        )

    def _findings(self) -> Part:
        columns = ("kind", "topic", "epoch", "shard", "id", "subscription", "detail")
        found = figures.named_findings(self._tables.findings, MOST_OF_KIND).collect()
        rows = [["" if row[name] is None else str(row[name]) for name in columns] for row in found]
        counts = ", ".join(
            f"{min(n, MOST_OF_KIND)} of {_count(n)} {kind}"
            for kind, n in sorted(self._found.items())
        )
        shown = f" Shown are {counts}; table findings has all." if counts else ""
        return Part(
            "Findings",
            f"What the last run of job reconcile found wrong, one row each.{shown}",
            table=Table("Findings", columns, rows, frozenset({2, 3})),
            nothing=(
                "Nothing is wrong, as far as the last run of job reconcile knows."
                if self._tables.is_reconciled
                else "Job reconcile has not run yet."
            ),
            wide=True,
        )

    def _by_line(self, rows: DataFrame) -> dict[str, list[int]]:
        """Return a value for each step, by the line's name."""
        at = {(row["line"], row["start"]): row["value"] for row in rows.collect()}
        return {n: [at.get((n, start), 0) for start in self.span.starts] for n in self._lines}


def _percentiles(title: str, about: str, found: DataFrame, span: Span) -> Part:
    """Draw the latencies of each step, from rows of `start`, percentiles and `precision`."""
    rows = _by(found, "start")
    precision = COARSE if any(row["precision"] for row in rows.values()) else None
    series = {
        f"p{percent}": [rows.get(start, {}).get(f"p{percent}_ms") for start in span.starts]
        for percent in PERCENTS
    }
    chart = charts.lines(
        charts.clock_labels(span.starts),
        series,
        title=f"{title}: percentiles over time",
        formatter=charts.duration,
        logarithmic=True,
    )
    return Part(title, about, chart, _times(span, series, lambda v: charts.latency(v, precision)))


def _by(rows: DataFrame, name: str) -> dict[Any, Row]:
    """Return rows by a column."""
    return {row[name]: row.asDict() for row in rows.collect()}


def _times(span: Span, series: Any, formatter: Callable[[float | None], str]) -> Table:
    rows = [
        [_moment(start), *(formatter(values[i]) for values in series.values())]
        for i, start in enumerate(span.starts)
    ]
    return Table("By time", ["from", *series], rows, frozenset(range(1, len(series) + 1)))


def _tracker(told: Any) -> str:
    if told is None:
        return ""
    settled = f"{_count(told['acked'])} acked, {_count(told['failed'])} failed"
    return f"{told['state']}: {settled} of {_count(told['total'])}"


def _cut(text: str) -> str:
    return text if len(text) <= _NAMED else text[: _NAMED - 1] + "…"


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _moment(ms: int) -> str:
    return charts.calendar_time(ms).strftime("%Y-%m-%d %H:%M:%S")
