"""The report: figures against plain arithmetic, and a page that is safe and asks for nothing."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from fairbox_pipeline.advice import Advice
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.report import charts, figures
from fairbox_pipeline.report.figures import MOST_POINTS, Span
from fairbox_pipeline.report.page import render
from fairbox_pipeline.schemas import FINDINGS_TABLE, MESSAGES_TABLE
from fairbox_pipeline.showing import show
from rich.console import Console

from tests.pipeline.writing import added, ended, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.pipeline.conftest import Pipeline

EVIL = "</script><img src=x onerror=alert(1)>\"'&<b>"


def messages(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    made = []
    for n, row in enumerate(rows):
        whole = {"topic": "t", "epoch": 0, "shard": 0, "id": f"{n}", "state": "outstanding"} | row
        made.append(tuple(whole.get(name) for name in MESSAGES_TABLE.names))
    return frame_of(spark, made, MESSAGES_TABLE.schema)


@pytest.mark.parametrize("length", [0, 1, 1000, 59_999, 3_600_000, 86_400_000 * 400, 10**13])
def test_a_span_has_few_steps_that_cover_it(length: int) -> None:
    first = 1_763_000_123_457
    span = Span.over(first, first + length)
    assert 1 <= len(span.starts) <= MOST_POINTS + 1
    assert span.starts[0] <= first
    assert span.starts[-1] <= first + length < span.starts[-1] + span.step
    assert all(start % span.step == 0 for start in span.starts)


def test_outstanding_counts_what_came_less_what_went(spark: SparkSession) -> None:
    table = messages(
        spark,
        {"added_at": 0, "state": "delivered", "delivered_at": 2500},
        {"added_at": 900, "state": "dead", "dead_at": 1100},
        {"added_at": 1000, "state": "cancelled", "last_at": 1000},
        {"added_at": 2000},
        {"added_at": None, "state": "delivered", "delivered_at": 5},
        {"added_at": 3000, "state": "delivered", "delivered_at": 2999},  # a clock behind
    )
    span = Span(0, 3999, 1000)
    rows = figures.outstanding(figures.moves(table, 0), ["t"], span).collect()
    assert {row["start"]: row["value"] for row in rows} == {0: 2, 1000: -1, 2000: 0, 3000: 0}
    (before,) = figures.outstanding(
        figures.moves(table, 3000), [], Span(3000, 3999, 1000)
    ).collect()
    assert tuple(before) == ("other topics", 3000, 1)


def test_fairness_is_one_when_all_are_served_alike_and_one_nth_when_one_is(
    spark: SparkSession,
) -> None:
    def done(topic: str, at: int, end: int) -> dict[str, Any]:
        return {"topic": topic, "added_at": at, "state": "delivered", "delivered_at": end}

    table = messages(
        spark,
        *(done("a", 0, 10) for _ in range(90)),  # all of its work, and of b's too
        *(done("b", 0, 20) for _ in range(10)),
        *(done("a", 1000, 1010) for _ in range(5)),  # then a alone, while b and c wait
        *({"topic": "b", "added_at": 1000} for _ in range(5)),
        {"topic": "c", "added_at": 1001},
        done("d", 3000, 3001),
    )
    rows = figures.fairness(figures.moves(table, 0), Span(0, 3999, 1000)).collect()
    found = {row["start"]: (row["jain"], row["topics"]) for row in rows}
    assert found[0] == (pytest.approx(1.0), 2)
    assert found[1000] == (pytest.approx(1 / 3), 3)
    # nothing moved in the third step: nothing can be said of it; in the fourth b and c still wait
    assert 2000 not in found
    assert found[3000] == (pytest.approx(1 / 3), 3)


class Elements(HTMLParser):
    """A page as a browser reads it: elements with their attributes, and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def check_safe(page: str) -> None:
    """Fail where anything runs, or anything is asked of a network."""
    elements = Elements(page).found
    assert not [tag for tag, _ in elements if tag in {"script", "iframe", "object", "img", "b"}]
    for tag, attributes in elements:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("href", "src", "xlink:href", "action", "data"):
            address = attributes.get(name) or ""
            assert not address or address.startswith(("#", "data:,")), (tag, attributes)
    assert not re.search(r"@import|url\((?!#)", page)
    outside = set(re.findall(r"https?://[^\s\"'<)]+", page))
    assert outside <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


@pytest.mark.parametrize(
    "svg",
    [
        charts.lines([EVIL] * 3, {EVIL: [1, 2, 3]}, title=EVIL, stacked=True),
        charts.lines([EVIL], {EVIL: [1.5]}, title=EVIL, logarithmic=True),
        charts.bars(EVIL, {EVIL: 1.0}),
        charts.lines([], {}, title="empty"),
    ],
)
def test_charts_are_whole_safe_and_named(svg: str) -> None:
    root = ET.fromstring(svg)  # noqa: S314 - made here
    assert root.get("role") == "img"
    assert root.get("aria-label") in (EVIL, "empty")
    check_safe(svg)


def test_the_same_figures_make_the_same_chart() -> None:
    one, two = (charts.lines(["a"], {"x": [1]}, title="t") for _ in range(2))
    assert one == two


def test_every_text_of_a_page_is_escaped() -> None:
    advice = Advice("now", "lost", EVIL, EVIL, subscription=EVIL)
    row = advice.as_row() | {"shell": EVIL}
    chart = {"svg": "", "headings": [EVIL], "rows": [[EVIL]]}
    topic = {"topic": EVIL, "hot_key": EVIL, "units_per_second": 1, "skew": 1}
    names = ("outstanding", "throughput", "latency", "days_before", "fairness")
    taker = {"topic": EVIL, "subscription": EVIL, "count": 1, "precision": None}
    counts = ("items_seen", "acked", "failed", "pending", "total")
    told = dict.fromkeys(counts, 1) | {"state": EVIL}
    page = render(
        {
            "verdict": EVIL,
            "span": Span(0, 1, 1),
            "is_of_a_day": True,
            "messages": 1,
            "states": {EVIL: 1},
            "is_reconciled": True,
            "found": {EVIL: 1},
            "most_of_kind": 1,
            "not_measured": [],
            "skew": "",
            "items": 0,
            **dict.fromkeys(names, chart),
            "topics": [dict.fromkeys(("messages", "shards", "shards_needed"), 1) | topic],
            "subscriptions": [taker | dict.fromkeys(("p50_ms", "p90_ms", "p99_ms", "max_ms"), 1)],
            "batches": [
                dict.fromkeys(counts, 1) | {"batch": EVIL, "tracker": told, "agrees": None}
            ],
            "findings": [[EVIL]],
            "advice": [row, row | {"severity": "note"}],
        }
    )
    check_safe(page)
    assert page.count("&lt;img src=x") == 29


def lines_of_everything() -> list[dict[str, Any]]:
    """Messages of two topics, one with an evil name, with every figure of the page."""
    lines = []
    start = 1_763_000_000_000
    for n in range(120):
        topic = EVIL if n % 3 == 0 else "orders" if n % 2 else f"t{n % 9}"
        at = start + n * 2500
        item = f"0198f7a2-0000-7000-8000-000000000000:0:{n}"
        lines.append(added(n, topic, at=at, batch_item=item))
        if n % 10 == 9:
            lines.append(ended("failed", n, topic, at=at + 500, subscription=EVIL))
            lines.append(ended("dead", n, topic, at=at + 900, subscription=EVIL, attempt=2))
        elif n % 10:
            delivered = ended("delivered", n, topic, at=at + 70 * n, subscription=EVIL)
            lines.append(delivered | {"attempt": 1 + n % 4})
    return lines


@pytest.mark.extended  # a run of every job
def test_the_page_holds_every_part_and_nothing_of_the_data_runs(pipeline: Pipeline) -> None:
    write(pipeline.archive, lines_of_everything())
    pipeline.run("reconcile")
    pipeline.run("batches")
    page_at = pipeline.run("report")["page"]
    assert page_at == str(pipeline.warehouse / "report.html")
    page = (pipeline.warehouse / "report.html").read_text()
    check_safe(page)
    assert "default-src 'none'" in page
    for title in (
        *("Outstanding over time", "Throughput", "Latency", "Fairness between topics"),
        *("Shard skew", "Batches", "Findings"),
    ):
        assert f">{title}</h2>" in page
    assert page.count('<svg role="img"') == 5
    assert "0198f7a2-0000-7000-8000-000000000000" in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    # again, over the same tables: the same page
    pipeline.run("report", "--page", str(pipeline.warehouse / "again.html"))
    assert (pipeline.warehouse / "again.html").read_text() == page
    assert not list(pipeline.warehouse.glob("*.new"))


def test_what_is_not_known_is_no_number(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    start = 1_763_000_000_000
    lines = [added(n, at=start + 300) for n in range(4)]
    lines += [ended("delivered", n, at=start + 300, precision="s") for n in range(4)]
    lines += [added(9, "exact", at=start), ended("delivered", 9, "exact", at=start + 1000)]
    write(pipeline.archive, lines)
    pipeline.run("all")
    page = (pipeline.warehouse / "report.html").read_text()
    shown = re.findall(r"<td>(orders|exact)</td><td>billing</td>(.*?)</tr>", page, re.DOTALL)
    cells = {topic: re.findall(r"<td[^>]*>(.*?)</td>", rest) for topic, rest in shown}
    assert cells == {"orders": ["4", *["&lt; 1 s"] * 4], "exact": ["1", *["1 s"] * 4]}
    assert '<dd class="words">not measured: see the consumers&#39; inbox</dd>' in page
    assert '<dt>lost</dt><dd class="good">0</dd>' in page
    # in the figures the bound stands, and in their text what is known
    rows = {row["topic"]: row for row in pipeline.run("latency")["rows"]}
    assert (rows["orders"]["p50_ms"], rows["orders"]["precision"]) == (1000, "s")
    assert (rows["exact"]["p50_ms"], rows["exact"].get("precision")) == (1000, None)
    capsys.readouterr()
    show("latency", {"rows": list(rows.values())}, Console(width=200))
    orders, exact = re.findall(r"│ (?:orders|exact) .*", capsys.readouterr().out)[::-1]
    assert (orders.count("< 1 s"), exact.count("< 1 s"), exact.count("1,000")) == (4, 0, 4)


def test_each_kind_of_findings_has_its_share(spark: SparkSession) -> None:
    rows = [("lost", "t", 0, 0, f"{n:02}", None, "", None) for n in range(30)]
    rows += [("stuck", "t", 0, 0, f"{n:02}", None, "", None) for n in range(2)]
    shown = figures.named_findings(frame_of(spark, rows[::-1], FINDINGS_TABLE.schema), 3).collect()
    assert [(row["kind"], row["id"]) for row in shown] == [
        *(("lost", f"{n:02}") for n in range(3)),
        *(("stuck", f"{n:02}") for n in range(2)),
    ]


def test_the_page_begins_with_a_verdict_and_what_to_do(pipeline: Pipeline, tmp_path: Path) -> None:
    def page(job: str, *arguments: str) -> str:
        pipeline.run(job, *arguments)
        text = (pipeline.warehouse / "report.html").read_text()
        assert text.index('class="verdict"') < text.index('class="figures"') < text.index("<main>")
        return text

    item = "0198f7a2-0000-7000-8000-000000000000:0:1"
    lines = [added(n, shard=0, batch_item=item if n == 1 else None) for n in range(1, 5)]
    ends = [ended("delivered", n, at=1_763_000_001_000, shard=0) for n in range(1, 5)]
    write(pipeline.archive, [*lines, ends[0]])
    text = page("report")
    assert "Whether messages are lost is not known: run job reconcile." in text
    assert "<dt>lost</dt>" not in text
    assert "Job batches has not run yet: 1 of the messages carry batch items." in text
    held = tmp_path / "held.ndjson"
    held.write_text(json.dumps({k: lines[1][k] for k in ("topic", "epoch", "shard", "id")}))
    text = page("all", "--outstanding", str(held))
    assert "Not all is well. Of 4 messages: 2 lost." in text
    assert "<dt>outstanding</dt><dd>1</dd>" in text
    assert re.search(r"<pre>fairbox-pipeline replay .* --findings lost --topic orders", text)
    assert "Shown are 2 of 2 lost;" in text
    assert "last event at 2025-11-13T02:13:20.000Z" in text
    assert "1763000" not in text
    write(pipeline.archive, ends[1:], "b")
    assert "All is well: of 4 messages none is lost." in page("all")


@pytest.mark.extended  # the other way is above
def test_deliveries_of_exact_times_are_counted(pipeline: Pipeline) -> None:
    line = ended("delivered", 1, at=1_763_000_001_000)
    write(pipeline.archive, [added(1), line, line | {"event_id": "again"}])
    pipeline.run("all")
    page = (pipeline.warehouse / "report.html").read_text()
    assert '<dt>duplicated</dt><dd class="bad">1</dd>' in page


def test_topics_whose_names_begin_alike_have_a_bar_each() -> None:
    drawn = charts.bars("t", {"x" * 80 + "a": 1.0, "x" * 80 + "b": 2.0})
    assert len(re.findall(r"<rect[^>]*class=\"rect", drawn)) == 2


def test_the_axis_of_latencies_has_the_round_times_around_them() -> None:
    latencies = {"p50": [1500.0, 7320.0]}
    drawn = charts.lines(
        ["x", "y"], latencies, title="t", formatter=charts.duration, logarithmic=True
    )
    assert re.findall(r"<text[^>]*>(\d+ s)</text>", drawn) == ["1 s", "10 s"]


def test_a_stack_begins_at_zero() -> None:
    drawn = charts.lines(["x", "y"], {"a": [100, 101], "b": [1, 2]}, title="t", stacked=True)
    assert re.search(r"<text[^>]*>0</text>", drawn)


@pytest.mark.extended  # the full page is above
def test_a_page_of_few_messages_is_a_page(pipeline: Pipeline) -> None:
    write(pipeline.archive, [added(1), added(2, at=2**48 - 1)])
    pipeline.run("report")
    page = (pipeline.warehouse / "report.html").read_text()
    check_safe(page)
    assert "Nothing was delivered." in page
    assert "9999-12-31" in page
