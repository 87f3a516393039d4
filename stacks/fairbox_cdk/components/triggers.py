"""Triggers of functions: a table's stream, a queue, a clock; each with bounded repetition."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct
from fairbox.tables import batch_records as batch_codec
from fairbox.tables.batch_values import ENDED
from fairbox.tables.feed_topics import FIRST
from fairbox.tables.keys import HEAD, HEARTBEATS, PK, SK
from fairbox.tables.stored_messages import SIZE

from fairbox_cdk.components import permissions as may

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_s3 as s3
    from aws_cdk import aws_sqs as sqs

    from fairbox_cdk.components.function import FairboxFunction

Pattern = dict[str, Any]

_PARTIAL: Final = ["ReportBatchItemFailures"]
_NUMBER: Final[Pattern] = {"N": [{"exists": True}]}
_ANY: Final[Pattern] = {SIZE: _NUMBER}
_NONE: Final[Pattern] = {SIZE: {"N": [{"exists": False}]}}


def inserted(lane: str) -> Pattern:
    """Return a filter of stream records: a message that entered `lane`."""
    keys = {PK: {"S": [{"prefix": f"{lane}#"}]}}
    return {"dynamodb": {"Keys": keys, "NewImage": _ANY, "OldImage": _NONE}}


def heartbeat() -> Pattern:
    """Return a filter of stream records: the row that `count_outstanding` writes each minute."""
    return {"dynamodb": {"Keys": {PK: {"S": [HEARTBEATS]}}}}


def any_message() -> list[Pattern]:
    """Return filters of stream records: a message added, changed or removed; no other row."""
    return [{"dynamodb": {"NewImage": _ANY}}, {"dynamodb": {"OldImage": _ANY}}]


def emptied_or_ended() -> list[Pattern]:
    """Return filters of the batches' stream: what was emptied, ended, or has first failed items."""
    absent = [{"exists": False}]
    root = {
        SK: {"S": [batch_codec.ROOT_SK]},
        batch_codec.STATE: {"S": sorted(ENDED)},
        batch_codec.NOTIFIED: {"BOOL": absent},
        batch_codec.ERASED: {"N": absent},
    }
    emptied = {batch_codec.COUNT: {"N": ["0"]}}
    died = {SK: {"S": [batch_codec.FAILED_SK]}, batch_codec.VERSION: {"N": ["1"]}}
    return [{"dynamodb": {"NewImage": image}} for image in (emptied, root, died)]


def grown_head() -> Pattern:
    """Return a filter of the feeds' stream: the head of a topic, which grows with each write."""
    return {"dynamodb": {"Keys": {SK: {"S": [HEAD]}}, "NewImage": {FIRST: _NUMBER}}}


class StreamTrigger(Construct):
    """A table's stream in front of a function.

    Retries are bounded by count, or with -1 by the expiry of the records after 24 hours: only for a
    function that sets aside itself what it cannot handle. A failed batch is halved until the
    failing record is alone, and given-up batches are stored with their records in a bucket, if one
    is given. With `maximum_age_seconds`, older records are given up unread: only for a function
    whose work others then do.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        function: FairboxFunction,
        table: dynamodb.ITable,
        failures: s3.IBucket | None,
        filters: Sequence[Pattern],
        batch_size: int,
        window_seconds: int,
        parallelization: int,
        retries: int,
        maximum_age_seconds: int | None = None,
    ) -> None:
        super().__init__(scope, id_)
        stream = table.table_stream_arn
        if stream is None:
            raise ValueError(f"table {table.node.path} has no stream")
        own = Stack.of(table).node.path == Stack.of(self).node.path
        function.allow(may.read_stream(table, stream, own=own))
        if failures is not None:
            function.allow([may.on_objects(failures, "PutObject"), may.list_bucket(failures)])
        mapping = lambda_.CfnEventSourceMapping(
            self,
            "Mapping",
            function_name=function.function.function_name,
            event_source_arn=stream,
            starting_position="TRIM_HORIZON",
            batch_size=batch_size,
            maximum_batching_window_in_seconds=window_seconds,
            parallelization_factor=parallelization,
            maximum_retry_attempts=retries,
            maximum_record_age_in_seconds=maximum_age_seconds,
            bisect_batch_on_function_error=True,
            function_response_types=_PARTIAL,
            filter_criteria=lambda_.CfnEventSourceMapping.FilterCriteriaProperty(
                filters=[
                    lambda_.CfnEventSourceMapping.FilterProperty(
                        pattern=json.dumps(one, separators=(",", ":"))
                    )
                    for one in filters
                ]
            ),
            destination_config=None if failures is None else _given_up_to(failures),
        )
        mapping.node.add_dependency(function.role)


def _given_up_to(
    bucket: s3.IBucket,
) -> lambda_.CfnEventSourceMapping.DestinationConfigProperty:
    return lambda_.CfnEventSourceMapping.DestinationConfigProperty(
        on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(destination=bucket.bucket_arn)
    )


class QueueTrigger(Construct):
    """A queue in front of a function; its dead-letter policy bounds repetition.

    Without a window, messages are received immediately; a batch of more than ten needs one.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        function: FairboxFunction,
        queue: sqs.IQueue,
        batch_size: int,
        maximum_concurrency: int,
        window_seconds: int | None = None,
    ) -> None:
        super().__init__(scope, id_)
        function.allow([may.consume(queue)])
        mapping = lambda_.CfnEventSourceMapping(
            self,
            "Mapping",
            function_name=function.function.function_name,
            event_source_arn=queue.queue_arn,
            batch_size=batch_size,
            maximum_batching_window_in_seconds=window_seconds,
            function_response_types=_PARTIAL,
            scaling_config=lambda_.CfnEventSourceMapping.ScalingConfigProperty(
                maximum_concurrency=maximum_concurrency
            ),
        )
        mapping.node.add_dependency(function.role)


class ClockTrigger(Construct):
    """A schedule in front of a function: a failed run is not repeated; the next one follows."""

    def __init__(
        self, scope: Construct, id_: str, *, function: FairboxFunction, every: Duration
    ) -> None:
        super().__init__(scope, id_)
        age = Duration.minutes(1)
        function.function.configure_async_invoke(retry_attempts=0, max_event_age=age)
        target = targets.LambdaFunction(function.function, retry_attempts=0, max_event_age=age)
        events.Rule(self, "Rule", schedule=events.Schedule.rate(every), targets=[target])
