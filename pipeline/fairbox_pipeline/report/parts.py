"""The parts of the report: each answers one question from the tables and draws it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.report import charts, figures
from fairbox_pipeline.report.figures import NOT_NAMED, OTHERS, Span
from fairbox_pipeline.report.page import Headline, Part, Table
from fairbox_pipeline.schemas import PERCENTS
from fairbox_pipeline.times import COARSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, Row

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
    "dead": "dead",
}
_NOT_MEASURED: Final = "not measured: see the consumers' inbox"


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that a report reads.

    Attributes:
        messages: those of its time.
        judged: the same, and those before it that are not settled.
        deliveries: the first deliveries of `messages`.
        events: those of its time.
        findings, batches: as the last runs of their jobs left them.
        hours: hourly latencies of the days before; None: all days are shown.
    """

    messages: DataFrame
    judged: DataFrame
    deliveries: DataFrame
    events: DataFrame
    findings: DataFrame
    batches: DataFrame
    hours: DataFrame | None = None


class Report:
    """Reads the tables once for each part.

    Args:
        tables: the current tables.
        is_reconciled: whether anybody has looked for findings.
    """

    def __init__(self, tables: Tables, *, is_reconciled: bool) -> None:
        self._tables = tables
        self._is_reconciled = is_reconciled
        self._totals = figures.totals(tables.judged).first()
        self._states = dict(_pairs(figures.states(tables.judged)))
        self._found = dict(_pairs(figures.findings(tables.findings)))
        self._ranks = figures.ranked_topics(tables.judged).persist()
        self._names = self._topic_names()
        self._delivered = tables.deliveries.where(F.col("latency").isNotNull())
        (shown,) = figures.totals(tables.messages).collect()
        first, last = shown["first"] or 0, shown["last"] or 0
        self.span = Span.over(first, last)
        self._moves = figures.moves(tables.judged, first)
        self._labels = charts.clock_labels(self.span.starts)

    def close(self) -> None:
        """Release the cached data."""
        self._ranks.unpersist()

    def _topic_names(self) -> dict[int, str]:
        rows = self._ranks.collect()
        names = {row["rank"]: row["topic"] for row in rows if row["rank"] != NOT_NAMED}
        if len(names) < len(rows):
            names[NOT_NAMED] = OTHERS
        return dict(sorted(names.items(), key=lambda item: item[0] or len(rows) + 1))

    def about(self) -> str:
        """Return a sentence about the time and figures of the page."""
        if self._totals is None or not self._totals["messages"]:
            return "There is no message in the tables."
        older = (
            ""
            if self._tables.hours is None
            else "; what is outstanding or dead is counted since whenever it was added"
        )
        return (
            f"From {_moment(self.span.first)} to {_moment(self.span.last)} (UTC), in steps of "
            f"{charts.duration(self.span.step)}{older}. Times are those of the events, whose "
            "clocks may differ; deliveries are stamped by the second."
        )

    def verdict(self) -> str:
        """Return one sentence that says whether all is well."""
        if self._totals is None or not self._totals["messages"]:
            return "Nothing has happened yet."
        bad = {_BAD[kind]: self._found.get(kind, 0) for kind in _BAD if kind != "dead"}
        bad[_BAD["dead"]] = self._states.get("dead", 0)
        named = ", ".join(f"{_count(n)} {words}" for words, n in bad.items() if n)
        if not self._is_reconciled:
            unknown = "Whether messages are lost is not known: run job reconcile."
            return f"{unknown} Known are {named}." if named else unknown
        count = _count(self._totals["messages"])
        if named:
            return f"Not all is well. Of {count} messages: {named}."
        return f"All is well: of {count} messages none is lost."

    def headline(self) -> list[Headline]:
        """The figures at the top."""
        totals = self._totals
        assert totals is not None
        shown = [Headline("messages", _count(totals["messages"]))]
        # a lost message is in no outbox
        there = max(0, self._states.get("outstanding", 0) - self._found.get("lost", 0))
        states = self._states | {"outstanding": there}
        shown += [
            Headline(state, _count(n), "bad" if state == "dead" and n else "")
            for state in _STATES
            if (n := states.get(state, 0)) or state in ("delivered", "outstanding", "dead")
        ]
        if not self._is_reconciled:
            return shown
        for kind in ("lost", "stuck", "out_of_order", "wrong_shard", "duplicated"):
            n = self._found.get(kind, 0)
            measured = n or kind != "duplicated" or not self._is_coarse()
            mood = ("bad" if n else "good") if measured else "words"
            value = _count(n) if measured else _NOT_MEASURED
            shown.append(Headline(kind.replace("_", " "), value, mood))
        return shown

    def _is_coarse(self) -> bool:
        """Whether deliveries are known from the stream: it tells of one a message, however many."""
        return not self._delivered.where(F.col("precision") == COARSE).isEmpty()

    def parts(self) -> list[Part]:
        """Every part, in the order of the page."""
        return [
            self._outstanding(),
            self._throughput(),
            self._latency(),
            *self._days_before(),
            self._fairness(),
            self._attempts(),
            self._shards(),
            self._by_subscription(),
            self._batches(),
            self._findings(),
        ]

    def _outstanding(self) -> Part:
        changes = figures.outstanding(self._moves, self._ranks, self.span)
        values = self._by_topic(changes, "change")
        series = {name: list(accumulate(each)) for name, each in values.items()}
        return Part(
            "Outstanding over time",
            "Messages added and not yet delivered to everybody, at the end of each step.",
            charts.lines(
                self._labels, series, title="Messages outstanding, by topic", stacked=True
            ),
            _times(self.span, series, charts.short),
        )

    def _throughput(self) -> Part:
        seconds = self.span.step / 1000
        values = self._by_topic(
            figures.throughput(self._delivered, self._ranks, self.span), "count"
        )
        series = {name: [v / seconds for v in each] for name, each in values.items()}
        return Part(
            "Throughput",
            "Deliveries a second: first deliveries of a message to a subscription.",
            charts.lines(self._labels, series, title="Deliveries a second, by topic", stacked=True),
            _times(self.span, series, charts.short),
        )

    def _latency(self) -> Part:
        return _percentiles(
            "Latency",
            "From due (added, or the end of its delay) to first delivered, percentiles of each "
            "step, on a logarithmic scale. Of deliveries that are stamped by the second, less "
            "than a second is drawn as one.",
            figures.latencies(self._delivered, self.span).collect(),
            self.span,
        )

    def _days_before(self) -> list[Part]:
        """Return the part about the latencies of the days before; none, if all days are shown."""
        hours = self._tables.hours
        found = [] if hours is None else figures.worst_latencies(hours).collect()
        if not found:
            return []
        times = [row["hour"] for row in found]
        span = Span.over(min(times), max(times))
        about = "The worst hour of the worst subscription in each step, from table latency_hourly."
        rows = [_worst(start, span, found) for start in span.starts]
        return [_percentiles("Latency in the days before", about, rows, span)]

    def _fairness(self) -> Part:
        rows = {row["start"]: row for row in figures.fairness(self._moves, self.span).collect()}
        values = [rows[s]["jain"] if s in rows else None for s in self.span.starts]
        series = {"Jain's index": values}
        return Part(
            "Fairness between topics",
            "Jain's index of the shares of their work that topics got delivered, in steps where "
            "two topics or more had any: 1 is all alike, 1/n is one of n served alone.",
            charts.lines(self._labels, series, title="Jain's index between topics", top=1.0),
            _times(self.span, series, lambda v: "" if v is None else f"{v:.3f}"),
        )

    def _attempts(self) -> Part:
        counted = {
            (r["event"], r["tries"]): r["count"]
            for r in figures.attempts(self._tables.events).collect()
        }
        series = {
            name: [counted.get((kind, tries), 0) for tries in figures.ATTEMPTS]
            for name, kind in (("delivered", "delivered"), ("died", "dead"))
        }
        rows = [
            [t, *(_count(series[n][i]) for n in series)] for i, t in enumerate(figures.ATTEMPTS)
        ]
        return Part(
            "Delivery attempts",
            "At which attempt deliveries succeeded, and after how many messages died.",
            charts.bars(figures.ATTEMPTS, series, title="Deliveries and deaths by attempt"),
            Table(
                "Deliveries and deaths by attempt", ["attempt", *series], rows, frozenset({1, 2})
            ),
        )

    def _shards(self) -> Part:
        rows = figures.shards(self._tables.messages).orderBy("skew", ascending=False)
        found = rows.limit(MOST_ROWS).collect()
        bars = found[:_MOST_BARS]
        return Part(
            "Shard skew",
            "Messages of the fullest shard by the mean over a topic's shards, in its newest epoch: "
            "1 is even. What is over 2 has a hot key, or few messages.",
            charts.wide_bars(
                [_cut(row["topic"]) for row in bars],
                [row["skew"] for row in bars],
                name="skew",
                title="Shard skew by topic",
            ),
            Table(
                "Shards by topic",
                ["topic", "shards", "fullest shard", "messages there", "mean", "skew"],
                [
                    [
                        r["topic"],
                        *(_count(r[name]) for name in ("shards", "fullest", "most")),
                        f"{r['mean']:.1f}",
                        f"{r['skew']:.2f}",
                    ]
                    for r in found
                ],
                frozenset(range(1, 6)),
            ),
        )

    def _by_subscription(self) -> Part:
        rows = figures.latencies_by_subscription(self._delivered, MOST_ROWS).collect()
        names = ("p50", "p90", "p99", "max")
        return Part(
            "Latency by subscription",
            "Over the whole time, the busiest first.",
            table=Table(
                "Latency by topic and subscription",
                ["topic", "subscription", "deliveries", *names],
                [
                    [
                        row["topic"],
                        row["subscription"] or "",
                        _count(row["count"]),
                        *(charts.latency(row[name], row["precision"]) for name in names),
                    ]
                    for row in rows
                ],
                frozenset(range(2, 7)),
            ),
            nothing="Nothing was delivered.",
            wide=True,
        )

    def _batches(self) -> Part:
        known = self._tables.batches.orderBy("agrees", "batch")
        rows = known.limit(MOST_ROWS).collect()
        agreement = {True: "yes", False: "no", None: ""}
        return Part(
            "Batches",
            "Progress rebuilt from the history, beside what the trackers said to the last run of "
            "job batches. Those that differ come first.",
            table=Table(
                "Batches",
                ["batch", "items seen", "acked", "failed", "pending", "tracker", "agrees"],
                [
                    [
                        row["batch"],
                        *(_count(row[n]) for n in ("items_seen", "acked", "failed", "pending")),
                        _tracker(row["tracker"]),
                        agreement[row["agrees"]],
                    ]
                    for row in rows
                ],
                frozenset(range(1, 5)),
            ),
            nothing=(
                f"Job batches has not run yet: {_count(self._totals['items'])} of the messages "
                "carry batch items."
                if self._totals and self._totals["items"]
                else "No message carries a batch item."
            ),
            wide=True,
        )

    def _findings(self) -> Part:
        columns = ("kind", "topic", "epoch", "shard", "id", "subscription", "detail")
        rows = figures.named_findings(self._tables.findings, MOST_OF_KIND).collect()
        counts = ", ".join(
            f"{min(n, MOST_OF_KIND)} of {_count(n)} {kind}"
            for kind, n in sorted(self._found.items())
        )
        shown = f" Shown are {counts}; table findings has all." if counts else ""
        return Part(
            "Findings",
            f"What the last run of job reconcile found wrong, one row each.{shown}",
            table=Table(
                "Findings",
                columns,
                [["" if row[n] is None else str(row[n]) for n in columns] for row in rows],
                frozenset({2, 3}),
            ),
            nothing=(
                "Nothing is wrong, as far as the last run of job reconcile knows."
                if self._is_reconciled
                else "Job reconcile has not run yet."
            ),
            wide=True,
        )

    def _by_topic(self, rows: DataFrame, column: str) -> dict[str, list[int]]:
        """Return a value for each step, by topic's name in the order of ranks."""
        at: dict[int, dict[int, int]] = defaultdict(dict)
        for row in rows.collect():
            at[row["rank"]][row["start"]] = row[column]
        return {
            name: [at[rank].get(start, 0) for start in self.span.starts]
            for rank, name in self._names.items()
        }


def _percentiles(title: str, about: str, found: Iterable[Row | dict[str, Any]], span: Span) -> Part:
    """Draw the latencies of each step; a row has `start`, `p50`, `p90`, `p99`, `precision`."""
    rows = {row["start"]: row for row in found}
    precision = COARSE if any(row["precision"] for row in rows.values()) else None
    series: dict[str, list[float | None]] = {
        name: [rows[s][name] if s in rows else None for s in span.starts]
        for name in (f"p{percent}" for percent in PERCENTS)
    }
    return Part(
        title,
        about,
        charts.lines(
            charts.clock_labels(span.starts),
            series,
            title=f"{title}: percentiles over time",
            formatter=charts.duration,
            logarithmic=True,
        ),
        _times(span, series, lambda ms: charts.latency(ms, precision)),
    )


def _worst(start: int, span: Span, hours: Iterable[Row]) -> dict[str, Any]:
    """Return the greatest latencies of the hours of a step; none: there were no deliveries."""
    of_step = [row.asDict() for row in hours if start <= row["hour"] < start + span.step]
    names = ("p50", "p90", "p99", "precision")
    told = {n: [row[n] for row in of_step if row[n] is not None] for n in names}
    return {"start": start} | {n: max(values, default=None) for n, values in told.items()}


def _times(span: Span, series: Any, formatter: Callable[[float | None], str]) -> Table:
    rows = [
        [_moment(start), *(formatter(values[i]) for values in series.values())]
        for i, start in enumerate(span.starts)
    ]
    return Table("By time", ["from", *series], rows, frozenset(range(1, len(series) + 1)))


def _pairs(rows: DataFrame) -> Iterable[tuple[str, int]]:
    return ((row[0], row[1]) for row in rows.collect())


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
