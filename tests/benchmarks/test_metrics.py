"""Custom metrics: as many as the settings promise, and the page of costs says so."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from fairbox.model.busiest_topics import BUSIEST, TROUBLED
from fairbox.model.subscription_status import NEW
from fairbox.settings import METRICS_LEVELS

from benchmarks import metrics
from tests.support.deployment import environment

if TYPE_CHECKING:
    from benchmarks.metrics import Count

PAGE: Final = Path(__file__).parents[2] / "docs/explanation/costs.md"
TOTALS: Final = 11
"""Metrics over all topics, where messages are sent, refused and sent again."""
CONSUMED: Final = 5
FEW: Final = [(topics, each) for topics in (10, 100) for each in (1, 3)]
MANY: Final = [
    pytest.param(1_000, each, marks=pytest.mark.extended) for each in metrics.SUBSCRIPTIONS
]


@cache
def counted(level: str, topics: int, subscriptions: int, *, refused: bool = False) -> Count:
    return metrics.count(level, topics, subscriptions, refused=refused)


def by_topic(subscriptions: int, *, refused: bool = False) -> int:
    """Return the metrics of one topic.

    Three of `count_outstanding`; of deliveries two, and two more after a refusal, by topic and by
    each of several subscriptions; and the bytes of each destination.
    """
    deliveries = 4 if refused else 2
    levels = 1 if subscriptions == 1 else 1 + subscriptions
    return 3 + deliveries * levels + subscriptions


@pytest.mark.parametrize(("topics", "subscriptions"), [*FEW, *MANY])
@pytest.mark.parametrize("refused", [False, True])
def test_metrics_of_an_hour_are_bounded_by_the_setting(
    topics: int, subscriptions: int, refused: bool
) -> None:
    each = by_topic(subscriptions, refused=refused)
    most = {"totals": 0, "busiest": min(topics, BUSIEST) * each, "all": topics * each}
    for level in METRICS_LEVELS:
        found = counted(level, topics, subscriptions, refused=refused).metrics
        assert most[level] <= found <= most[level] + TOTALS, level


def test_an_hour_in_which_every_topic_gets_into_trouble_is_bounded() -> None:
    hour = metrics.Hour("busiest")
    names = hour.create(60, 1)
    hour.invoke("count_outstanding", {})
    for half in (names[30:], names[:30]):
        for name in half:
            opened = NEW.opened(int(hour.clock.now() * 1000), "HTTP 503", Random(1))
            tables = hour.outbox.tables
            tables.circuits.write(name, "billing-0", opened, NEW, announce=True)
        hour.clock.advance(60)
        hour.invoke("count_outstanding", {})
        hour.clock.advance(60)
        hour.invoke("count_outstanding", {})
    topics = {value for _, place in hour.metrics() for value in place if value in names}
    assert TROUBLED < len(topics) <= BUSIEST + TROUBLED


def test_consumers_metrics_are_bounded_too() -> None:
    topics = BUSIEST + 5
    found = {level: metrics.consumed(level, topics) for level in METRICS_LEVELS}
    assert found == {
        "totals": CONSUMED,
        "busiest": CONSUMED * (1 + BUSIEST),
        "all": CONSUMED * (1 + topics),
    }


def test_at_rest_there_are_few_metrics_and_lines() -> None:
    found = metrics.at_rest()
    assert found.metrics == 8
    assert found.count_bytes < 1_000
    assert found.log_dollars < 0.05


def test_a_topic_that_is_no_metric_makes_a_shorter_line() -> None:
    lengths = {level: counted(level, 100, 1).count_bytes for level in METRICS_LEVELS}
    assert lengths["totals"] < lengths["busiest"] < lengths["all"]
    assert lengths["all"] > 3 * lengths["totals"]


def test_the_benchmark_s_functions_get_the_setting_as_those_of_the_template_do() -> None:
    for function in ("relay", "deliver_shard", "count_outstanding"):
        given = environment(function)
        level = given["FAIRBOX_METRICS_DETAIL"]
        assert set(metrics.ENVIRONMENT) >= {name for name in given if name in metrics.ENVIRONMENT}
        assert metrics.count(level, 30, 1, environment=given) == metrics.count("busiest", 30, 1)


def rows() -> dict[tuple[str, int, int], tuple[int, int, int, int]]:
    """Return the page's table: metrics, of those refused, dollars and bytes."""
    found = {}
    pattern = (
        r"^\| `(\w+)` \| ([\d,]+) \| (\d) \| ([\d,]+) \| ([\d,]+) \| \$([\d,]+) \| ([\d,]+) \|"
    )
    for row in re.findall(pattern, PAGE.read_text(), re.MULTILINE):
        level, *numbers = row
        topics, each, *values = (int(number.replace(",", "")) for number in numbers)
        found[level, topics, each] = (values[0], values[1], values[2], values[3])
    return found


@pytest.mark.parametrize(("topics", "subscriptions"), [*FEW, *MANY])
@pytest.mark.parametrize("level", METRICS_LEVELS)
def test_the_page_of_costs_has_the_figures_that_are_counted(
    level: str, topics: int, subscriptions: int
) -> None:
    found = counted(level, topics, subscriptions)
    refused = counted(level, topics, subscriptions, refused=True)
    assert rows()[level, topics, subscriptions] == (
        found.metrics,
        refused.metrics,
        round(found.dollars),
        found.count_bytes,
    )


def test_the_page_has_a_row_for_each_setting_and_number_of_topics() -> None:
    expected = {
        (level, topics, each)
        for level in METRICS_LEVELS
        for topics in metrics.TOPICS
        for each in metrics.SUBSCRIPTIONS
    }
    assert set(rows()) == expected
