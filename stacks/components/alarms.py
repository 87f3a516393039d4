"""Alarms: each describes the problem and always notifies a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions

if TYPE_CHECKING:
    from aws_cdk import aws_sns as sns
    from constructs import Construct


def alarm_above(
    scope: Construct,
    id_: str,
    *,
    metric: cloudwatch.IMetric,
    threshold: float,
    description: str,
    topic: sns.ITopic,
    periods: int = 1,
    datapoints: int | None = None,
    missing_is_bad: bool = False,
) -> cloudwatch.Alarm:
    """Alarm when `metric` exceeds `threshold` for `periods`; notify the recovery, too.

    With `datapoints`, that many of the last `periods` suffice.
    """
    alarm = cloudwatch.Alarm(
        scope,
        id_,
        metric=metric,
        threshold=threshold,
        evaluation_periods=periods,
        datapoints_to_alarm=datapoints,
        alarm_description=description,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
        treat_missing_data=(
            cloudwatch.TreatMissingData.BREACHING
            if missing_is_bad
            else cloudwatch.TreatMissingData.NOT_BREACHING
        ),
    )
    action = actions.SnsAction(topic)
    alarm.add_alarm_action(action)
    alarm.add_ok_action(action)
    return alarm
