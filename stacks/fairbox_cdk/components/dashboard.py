"""The dashboard: waiting and sent messages, lags, failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from fairbox_cdk.components import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_apigatewayv2 as apigateway
    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_sqs as sqs

    from fairbox_cdk.components.function import FairboxFunction

_COLUMNS: Final = 24
_PER_ROW: Final = 3


class Dashboard(Construct):
    """One page, a question a row.

    Args:
        detail: setting `metrics_detail`; with `totals` there are no metrics by topic, and their
            rows show the figures over all topics.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        detail: str,
        functions: Sequence[FairboxFunction],
        stream_functions: Sequence[FairboxFunction],
        queues: Sequence[sqs.Queue],
        dead_letters: Sequence[sqs.Queue],
        ack_queues: Sequence[sqs.Queue],
        tables: Sequence[dynamodb.Table],
        http_api: apigateway.HttpApi,
    ) -> None:
        super().__init__(scope, id_)
        by_topic = detail != "totals"
        rows = [
            [_note(detail)],
            _waiting(by_topic=by_topic),
            *([_partitions(), *_destinations()] if by_topic else [_overall()]),
            _consumed(by_topic=by_topic),
            *([_shares()] if by_topic else []),
            _behind(stream_functions, queues, dead_letters),
            *_batches(ack_queues),
            _functions(functions),
            [*_tables(tables), _api(http_api)],
        ]
        cloudwatch.Dashboard(self, "Page", widgets=rows)


def _graph(title: str, *lines: cloudwatch.IMetric) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=title, left=list(lines), width=_COLUMNS // _PER_ROW, period=metrics.MINUTE
    )


def _note(detail: str) -> cloudwatch.IWidget:
    """Say of which topics there are metrics, and where the figures of the others are."""
    topics = {
        "totals": "All figures are over all topics.",
        "busiest": "Figures by topic are those of the 20 busiest topics, and of topics in trouble.",
        "all": "Figures by topic are those of all topics.",
    }
    queries = "Saved queries of Logs Insights, under the names of the stacks, find every topic's."
    return cloudwatch.TextWidget(
        markdown=f"`metrics_detail` = `{detail}`. {topics[detail]} {queries}",
        width=_COLUMNS,
        height=1,
    )


def _waiting(*, by_topic: bool) -> list[cloudwatch.IWidget]:
    """Outstanding messages, their age, and dead messages."""
    return [
        _graph(
            title,
            metrics.total(name).with_(label="all topics"),
            *([metrics.by_topic(name, "Maximum")] if by_topic else []),
        )
        for title, name in (
            ("Outstanding messages", metrics.OUTSTANDING_COUNT),
            ("Oldest outstanding message (s)", metrics.OLDEST_AGE),
            ("Dead letters", metrics.DEAD_COUNT),
        )
    ]


def _overall() -> list[cloudwatch.IWidget]:
    """Deliveries, delay and circuits over all topics."""
    sent = (metrics.SENT, metrics.FAILED, metrics.RETRIED, metrics.DEAD)
    return [
        _graph("Deliveries, a minute", *map(metrics.summed, sent)),
        _graph("Longest delay (s)", metrics.total(metrics.DELAY)),
        _graph("Circuits", *_circuits()),
    ]


def _circuits() -> list[cloudwatch.IMetric]:
    """Circuits that are open and subscriptions that are paused, over all topics."""
    return [
        metrics.total(name).with_(label=label)
        for name, label in (
            (metrics.OPEN_CIRCUITS, "open"),
            (metrics.PAUSED_SUBSCRIPTIONS, "paused"),
        )
    ]


def _partitions() -> list[cloudwatch.IWidget]:
    """The same for each partition, by its registered logical name."""
    return [
        _graph(f"{title}, by partition", metrics.by_partition(name, "Maximum"))
        for title, name in (
            ("Outstanding messages", metrics.OUTSTANDING_COUNT),
            ("Oldest outstanding message (s)", metrics.OLDEST_AGE),
            ("Dead letters", metrics.DEAD_COUNT),
        )
    ]


def _destinations() -> list[list[cloudwatch.IWidget]]:
    """Each destination: its calls, its delay, and its circuit.

    A topic with one subscription has figures by topic only.
    """

    def graph(
        title: str, name: str, statistic: str, *more: cloudwatch.IMetric
    ) -> cloudwatch.IWidget:
        found = (metrics.by_topic(name, statistic), metrics.by_destination(name, statistic))
        return _graph(title, *more, *found)

    def calls(title: str, name: str) -> cloudwatch.IWidget:
        return graph(f"{title}, a minute, by topic and destination", name, "Sum")

    return [
        [calls(name, name) for name in (metrics.SENT, metrics.FAILED, metrics.RETRIED)],
        [
            graph("Longest delay (s), by topic and destination", metrics.DELAY, "Maximum"),
            calls("Died", metrics.DEAD),
            graph("Circuits", metrics.OPEN_CIRCUITS, "Maximum", *_circuits()),
        ],
    ]


def _consumed(*, by_topic: bool) -> list[cloudwatch.IWidget]:
    """Messages received and settled per minute; messages with lost receipts are handled twice."""
    settled = (metrics.RECEIVED, metrics.ACKED, metrics.GIVEN_BACK, metrics.LOST_RECEIPTS)
    ended = (*settled, metrics.EXPIRED)
    found = [_graph("Received, settled and expired, a minute", *map(metrics.summed, ended))]
    if by_topic:
        found += [
            _graph("Received, a minute, by topic", metrics.by_topic(metrics.RECEIVED, "Sum")),
            _graph("Acked, a minute, by partition", metrics.by_partition(metrics.ACKED, "Sum")),
        ]
    return list(found)


def _shares() -> list[cloudwatch.IWidget]:
    """Shares of the sent bytes, by destination and topic."""
    return [
        cloudwatch.GraphWidget(
            title="Share of the bytes sent, by destination and topic (%)",
            left=[metrics.shares(metrics.SENT_BYTES)],
            left_y_axis=cloudwatch.YAxisProps(min=0, max=100),
            stacked=True,
            width=_COLUMNS,
            period=metrics.MINUTE,
        )
    ]


def _behind(
    functions: Sequence[FairboxFunction],
    queues: Sequence[sqs.Queue],
    dead_letters: Sequence[sqs.Queue],
) -> list[cloudwatch.IWidget]:
    """Readers of the stream, and the queues of doorbells."""
    ages = [metrics.iterator_age(one.function).with_(label=one.name) for one in functions]
    return [
        _graph("Behind the stream (ms)", *ages),
        _graph("Doorbells waiting", *map(_depth, queues)),
        _graph("Doorbells given up", *map(_depth, dead_letters)),
    ]


def _depth(queue: sqs.Queue) -> cloudwatch.Metric:
    return queue.metric_approximate_number_of_messages_visible(
        period=metrics.MINUTE, statistic="Maximum", label=queue.node.id
    )


def _batches(ack_queues: Sequence[sqs.Queue]) -> list[list[cloudwatch.IWidget]]:
    """Open batches and their age, ends of batches, and acks."""
    ended = (metrics.BATCHES_COMPLETED, metrics.BATCHES_ORPHANED)
    acks = (metrics.BATCH_ACKS, metrics.BATCH_ACKS_DROPPED)
    return [
        [
            _graph(
                "Open batches",
                metrics.total(metrics.OPEN_BATCHES).with_(label="open"),
                metrics.hourly(metrics.STALLED_BATCHES).with_(label="stalled"),
            ),
            _graph("Oldest open batch (s)", metrics.total(metrics.OLDEST_BATCH_AGE)),
            _graph("Batches ended", *map(metrics.summed, ended)),
        ],
        [
            _graph("Acks of items", *map(metrics.summed, acks)),
            _graph("Acks waiting", *map(_depth, ack_queues)),
        ],
    ]


def _functions(functions: Sequence[FairboxFunction]) -> list[cloudwatch.IWidget]:
    def each(name: str, statistic: str) -> list[cloudwatch.IMetric]:
        return [
            one.function.metric(name, period=metrics.MINUTE, statistic=statistic, label=one.name)
            for one in functions
        ]

    return [
        _graph("Function errors", *each("Errors", "Sum")),
        _graph("Function throttles", *each("Throttles", "Sum")),
        _graph("Function duration, p99 (ms)", *each("Duration", "p99")),
    ]


def _tables(tables: Sequence[dynamodb.Table]) -> list[cloudwatch.IWidget]:
    def each(*names: str) -> list[cloudwatch.IMetric]:
        return [
            table.metric(
                name, period=metrics.MINUTE, statistic="Sum", label=f"{table.node.id} {name}"
            )
            for table in tables
            for name in names
        ]

    return [
        _graph("Table throttles", *each("ReadThrottleEvents", "WriteThrottleEvents")),
        _graph(
            "Table capacity used", *each("ConsumedReadCapacityUnits", "ConsumedWriteCapacityUnits")
        ),
    ]


def _api(http_api: apigateway.HttpApi) -> cloudwatch.IWidget:
    return _graph(
        "API",
        http_api.metric_count(period=metrics.MINUTE, label="requests"),
        http_api.metric_client_error(period=metrics.MINUTE, statistic="Sum", label="4xx"),
        http_api.metric_server_error(period=metrics.MINUTE, statistic="Sum", label="5xx"),
    )
