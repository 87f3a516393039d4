"""Saved queries of Logs Insights, for figures by topic that are no metrics; they are free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Stack
from aws_cdk import aws_logs as logs

from fairbox_cdk.components import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from constructs import Construct

    from fairbox_cdk.components.function import FairboxFunction

OUTSTANDING: Final = f"""\
filter ispresent({metrics.OUTSTANDING_COUNT}) and ispresent(topic)
| stats latest({metrics.OUTSTANDING_COUNT}) as outstanding,
        max({metrics.OLDEST_AGE}) as oldest_age_seconds,
        latest({metrics.DEAD_COUNT}) as dead by topic
| sort outstanding desc
| limit 100"""
CIRCUITS: Final = f"""\
filter ispresent(subscription)
| stats count({metrics.OPEN_CIRCUITS}) as minutes_open,
        count({metrics.PAUSED_SUBSCRIPTIONS}) as minutes_paused by topic, subscription
| sort minutes_open desc
| limit 100"""
DELIVERIES: Final = f"""\
filter ispresent(subscription) and (ispresent({metrics.SENT}) or ispresent({metrics.FAILED})
    or ispresent({metrics.DEAD}))
| stats sum({metrics.SENT}) as sent, sum({metrics.FAILED}) as failed,
        sum({metrics.RETRIED}) as retried, sum({metrics.DEAD}) as dead,
        max({metrics.DELAY}) as longest_delay_seconds by topic, subscription
| sort failed desc, sent desc
| limit 100"""
SHARES: Final = f"""\
filter ispresent({metrics.SENT_BYTES})
| stats sum({metrics.SENT_BYTES}) as bytes by destination, topic
| sort bytes desc
| limit 100"""


def save_queries(
    scope: Construct, functions: Sequence[FairboxFunction], queries: dict[str, str]
) -> None:
    """Save queries over the logs of functions, in a folder named after the stack.

    Args:
        scope: a stack.
        functions: of the same stack.
        queries: the query's text by its title.
    """
    for title, text in queries.items():
        logs.CfnQueryDefinition(
            scope,
            f"{title.title().replace(' ', '')}Query",
            name=f"{Stack.of(scope).stack_name}/{title}",
            query_string=text,
            log_group_names=[one.function.log_group.log_group_name for one in functions],
        )
