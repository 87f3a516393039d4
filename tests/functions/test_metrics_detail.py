"""Setting `metrics_detail`: one function ranks the topics, others write their figures."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from fairbox import InvalidInput, Message, Subscription, Topic
from fairbox.model.ids import IdGenerator
from fairbox.tables.topic_cache import MAX_BUSIEST, BusiestTopics

from local.functions.logs import metric_data
from tests.functions.api_client import read_event
from tests.functions.running import Functions

TOPICS = MAX_BUSIEST + 5
BILLING = "https://sqs.eu-west-1.amazonaws.com/123456789012/billing"


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Functions:
    """The functions, with five topics more than the list of the busiest holds."""
    functions = Functions(monkeypatch)
    for number in range(TOPICS):
        functions.outbox.create_topic(Topic(name(number), shards=1))
        functions.outbox.add_subscription(Subscription(name(number), "billing", f"sqs:{BILLING}"))
    return functions


def name(number: int) -> str:
    return f"topic-{number:02d}"


def count(functions: Functions) -> Any:
    functions.clock.advance(60)
    return functions.invoke("count_outstanding", read_event("clock_count_outstanding"))


def listed(functions: Functions) -> BusiestTopics:
    application = functions.load("relay").Application.from_env()
    application.tables.topic_cache.refresh()
    busiest: BusiestTopics = application.tables.topic_cache.busiest
    return busiest


def relay(functions: Functions, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Let the relay deliver a message of every topic; return the lines that it prints."""
    after = functions.engine.stream(functions.tables["outbox"]).take(None)
    ids = IdGenerator(functions.clock, lambda _: 0)
    for number in range(TOPICS):
        functions.outbox.add(Message(topic=name(number), body=b"{}", id=ids.next()))
    records = functions.engine.stream(functions.tables["outbox"]).take(
        after[-1]["dynamodb"]["SequenceNumber"]
    )
    capsys.readouterr()
    functions.invoke("relay", {"Records": records})
    assert len(functions.sqs.bodies(BILLING)) == TOPICS
    return capsys.readouterr().out.splitlines()


def topics(lines: list[str]) -> set[str]:
    """Return the topics that are a dimension's value."""
    return {
        dimension["Value"]
        for line in lines
        for _, datum in metric_data(line.encode())
        for dimension in datum["Dimensions"]
        if dimension["Name"] == "topic"
    }


def sent(lines: list[str]) -> float:
    """Return the total of `Sent`, as the alarms and the dashboard see it."""
    found: list[float] = []
    for line in lines:
        for _, datum in metric_data(line.encode()):
            if datum["MetricName"] == "Sent" and len(datum["Dimensions"]) == 1:
                found += datum["Values"]
    return sum(found)


@pytest.mark.parametrize(
    ("level", "expected"), [("totals", 0), ("busiest", MAX_BUSIEST), ("all", TOPICS)]
)
def test_the_relay_writes_metrics_of_the_topics_that_count_outstanding_listed(
    functions: Functions, capsys: pytest.CaptureFixture[str], level: str, expected: int
) -> None:
    functions.settings["FAIRBOX_METRICS_DETAIL"] = level
    count(functions)
    lines = relay(functions, capsys)
    assert len(topics(lines)) == expected
    assert sent(lines) == TOPICS
    if level == "busiest":
        assert topics(lines) == listed(functions).names
    each = [one for one in map(json.loads, lines) if "Sent" in one and "subscription" in one]
    assert {one["topic"] for one in each} == {name(number) for number in range(TOPICS)}


def test_the_template_lets_functions_write_the_busiest(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    count(functions)
    assert len(topics(relay(functions, capsys))) == MAX_BUSIEST


@pytest.mark.parametrize("level", ["totals", "all"])
def test_topics_are_ranked_only_where_somebody_asks(functions: Functions, level: str) -> None:
    functions.settings["FAIRBOX_METRICS_DETAIL"] = level
    count(functions)
    assert listed(functions) == BusiestTopics()


def test_topics_with_an_open_circuit_or_dead_letters_are_listed_though_they_are_quiet(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    count(functions)
    quiet = name(TOPICS - 1)
    assert quiet not in listed(functions).names
    state = functions.outbox.topic(quiet)
    tables = functions.load("relay").Application.from_env().tables
    status = state.status("billing").opened(int(functions.clock.now() * 1000), "no", Random(1))
    tables.circuits.write(quiet, "billing", status, state.status("billing"), announce=True)
    count(functions)
    assert quiet in listed(functions).names
    capsys.readouterr()
    total = count(functions)
    lines = capsys.readouterr().out.splitlines()
    assert (total["OpenCircuits"], topics(lines)) == (1, {quiet})


@pytest.mark.parametrize("function", ["relay", "deliver_shard", "count_outstanding"])
def test_a_level_that_is_none_is_refused_before_anything_is_sent(
    functions: Functions, function: str
) -> None:
    functions.settings["FAIRBOX_METRICS_DETAIL"] = "most"
    with pytest.raises(InvalidInput) as refused:
        functions.invoke(function, {"Records": []})
    assert refused.value.field == "FAIRBOX_METRICS_DETAIL"
    assert refused.value.expected == "'totals', 'busiest' or 'all'"
