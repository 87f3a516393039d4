"""Setting `metrics_detail`: totals are the same with each, and what is no metric is a property."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import InvalidInput, Message, Topic
from fairbox.consumer.consumer import Consumer
from fairbox.model.topics import Partition
from fairbox.observability import metrics as names
from fairbox.observability.metrics import Metrics, MetricsDetail, emit_shares
from fairbox.settings import METRICS_LEVELS, MetricsLevel, Settings
from fairbox.testing import ManualClock
from fairbox.testing.application import MemoryApplication
from hypothesis import given
from hypothesis import strategies as st

from local.functions.logs import metric_data

if TYPE_CHECKING:
    from collections.abc import Mapping

Key = tuple[str, tuple[str, ...]]

SUBSCRIPTIONS = {"busy": 2, "single": 1, "other": 2}
FIGURES = {
    ("busy", "a"): {names.SENT: 3.0, names.DELAY: 2.0},
    ("busy", "b"): {names.FAILED: 1.0},
    ("single", "a"): {names.SENT: 4.0, names.DELAY: 7.0},
    ("other", "a"): {names.SENT: 5.0},
}


class Output:
    """Metrics of a level, and what CloudWatch reads of them."""

    def __init__(self, level: MetricsLevel) -> None:
        self.out = io.StringIO()
        detail = MetricsDetail(level, lambda: {"busy", "single"}, SUBSCRIPTIONS.__getitem__)
        self.metrics = Metrics(ManualClock(), self.out, detail)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]

    @property
    def written(self) -> dict[Key, list[float]]:
        """The values by metric and dimensions' values, but for the service's."""
        found: dict[Key, list[float]] = {}
        for line in self.out.getvalue().splitlines():
            for _, datum in metric_data(line.encode()):
                place = tuple(d["Value"] for d in datum["Dimensions"][1:])
                found.setdefault((datum["MetricName"], place), []).extend(datum["Values"])
        return found

    def topics(self) -> set[str]:
        """Return the topics that are a dimension's value."""
        return {topic for _, place in self.written for topic in place} & set(SUBSCRIPTIONS)


def written(level: MetricsLevel, figures: Mapping[tuple[str, str], Mapping[str, float]]) -> Output:
    output = Output(level)
    output.metrics.emit_by_destination(figures)
    return output


def test_totals_writes_no_topic_busiest_the_listed_ones_and_all_every_one() -> None:
    topics = {level: written(level, FIGURES).topics() for level in METRICS_LEVELS}
    assert topics == {"totals": set(), "busiest": {"busy", "single"}, "all": {*SUBSCRIPTIONS}}


def test_figures_of_an_only_subscription_are_those_of_its_topic() -> None:
    places = {place for _, place in written("all", FIGURES).written}
    assert places == {
        (), ("busy",), ("busy", "a"), ("busy", "b"), ("single",), ("other",), ("other", "a"),
    }  # fmt: skip


pairs = st.tuples(st.sampled_from(sorted(SUBSCRIPTIONS)), st.sampled_from("abc"))
counted = st.dictionaries(
    st.sampled_from([names.SENT, names.FAILED, names.DELAY]), st.integers(1, 99), min_size=1
)


@given(st.dictionaries(pairs, counted))
def test_totals_are_exact_and_each_figure_is_in_one_line_with_its_subscription(
    figures: dict[tuple[str, str], dict[str, float]],
) -> None:
    expected: dict[str, float] = {}
    for values in figures.values():
        for name, value in values.items():
            before = expected.get(name, 0)
            expected[name] = max(before, value) if name == names.DELAY else before + value
    for level in METRICS_LEVELS:
        output = written(level, figures)
        totals = {name: v for (name, place), v in output.written.items() if not place}
        assert totals == {name: [value] for name, value in expected.items()}, level
        found = [line for line in output.lines if "subscription" in line]
        assert len(found) == len(figures)
        for line in found:
            values = figures[line["topic"], line["subscription"]]
            assert {n: line[n] for n in expected if n in line} == values


def test_what_one_line_can_say_is_one_line() -> None:
    (line,) = written("all", {("single", "a"): {names.SENT: 1}}).lines
    (described,) = line["_aws"]["CloudWatchMetrics"]
    assert described["Dimensions"] == [["service"], ["service", "topic"]]
    (line,) = written("totals", {("other", "a"): {names.SENT: 1}}).lines
    (described,) = line["_aws"]["CloudWatchMetrics"]
    assert described["Dimensions"] == [["service"]]
    assert (line["topic"], line["subscription"]) == ("other", "a")


def test_a_total_that_is_given_is_written_even_where_nothing_else_is() -> None:
    output = Output("busiest")
    output.metrics.emit_by_destination({}, {names.OPEN_CIRCUITS: 0})
    assert output.written == {(names.OPEN_CIRCUITS, ()): [0]}
    output = Output("busiest")
    one = {names.OPEN_CIRCUITS: 1}
    output.metrics.emit_by_destination({("busy", "a"): one}, one | {names.PAUSED_SUBSCRIPTIONS: 0})
    places = {place for name, place in output.written if name == names.OPEN_CIRCUITS}
    assert places == {(), ("busy",), ("busy", "a")}


def test_shares_and_partitions_of_other_topics_are_properties() -> None:
    output = Output("busiest")
    sent = {("busy", "a"): 5, ("other", "a"): 7}
    emit_shares(output.metrics, sent, lambda topic, _: f"sqs:http://q/{topic}")
    output.metrics.emit({names.ACKED: 1}, topic="other", partition=Partition("jobs", 1, 2))
    assert set(output.written) == {(names.SENT_BYTES, ("sqs:http://q/busy", "busy"))}
    _, share, acked = output.lines
    assert share == {
        "service": "fairbox", "destination": "sqs:http://q/other", "topic": "other", "SentBytes": 7,
    }  # fmt: skip
    assert acked == {
        "service": "fairbox", "topic": "other", "queue": "jobs", "partition": "1", "Acked": 1,
    }  # fmt: skip


def test_metrics_of_one_s_own_are_by_every_topic() -> None:
    out = io.StringIO()
    Metrics(ManualClock(), out).emit({names.ACKED: 1}, topic="jobs")
    assert '["service","topic"]' in out.getvalue()


def test_the_level_is_read_from_the_environment() -> None:
    assert Settings({}).metrics_level == Settings({"FAIRBOX_METRICS_DETAIL": ""}).metrics_level
    assert Settings({}).metrics_level == "busiest"
    for level in METRICS_LEVELS:
        assert Settings({"FAIRBOX_METRICS_DETAIL": level}).metrics_level == level
    with pytest.raises(InvalidInput) as caught:
        _ = Settings({"FAIRBOX_METRICS_DETAIL": "Most"}).metrics_level
    assert str(caught.value).count("\n") == 0
    for word in ("FAIRBOX_METRICS_DETAIL", *METRICS_LEVELS):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("level", "expected"), [("totals", set()), ("busiest", {"jobs"}), ("all", {"jobs", "quiet"})]
)
def test_consumers_follow_the_list_and_read_nothing_for_it(
    level: str, expected: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    app = MemoryApplication()
    for name in ("jobs", "quiet"):
        app.outbox.create_topic(Topic(name, shards=1))
        app.queue.send(Message(topic=name, body=b"{}", id=app.ids.next()))
    app.tables.topic_cache.refresh()
    listed = app.tables.topic_cache.busiest.joined(["jobs"], limit=1)
    app.outbox.tables.topics.write_busiest(listed)
    app.clock.advance(2)
    metrics = app.queue.metrics(Settings({"FAIRBOX_METRICS_DETAIL": level}))
    for name in ("jobs", "quiet"):
        Consumer(app.queue, name, lambda _: None, metrics=metrics).run_until_empty()
    found = set[str]()
    lines = capsys.readouterr().out.splitlines()
    for line in lines:
        for _, datum in metric_data(line.encode()):
            found |= {d["Value"] for d in datum["Dimensions"] if d["Name"] == "topic"}
    assert found == expected
    acked = [one for one in map(json.loads, lines) if one.get("topic") == "quiet"]
    assert [one["Acked"] for one in acked] == [1]
