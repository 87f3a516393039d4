"""Alarms: each has a name, describes the problem, names its runbook, and notifies a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions

from fairbox_cdk.components.deployment import deployment_name, runbook_url

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
    section: str = "",
    silence_is_bad: bool = False,
) -> cloudwatch.Alarm:
    """Alarm when `metric` exceeds `threshold` for `periods`; notify the recovery, too.

    With `datapoints`, that many of the last `periods` suffice. A metric without data is no alarm,
    because nobody may use the deployment yet. With `silence_is_bad`, the end of data notifies as
    well: a deployment that never had any stays quiet.

    `section` is the heading of the runbook's section about it, by default the alarm's id.
    """
    alarm = cloudwatch.Alarm(
        scope,
        id_,
        alarm_name=f"{deployment_name(scope)}-{_part(scope, id_)}",
        metric=metric,
        threshold=threshold,
        evaluation_periods=periods,
        datapoints_to_alarm=datapoints,
        alarm_description=f"{description} {runbook_url(scope, section or id_)}",
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
        treat_missing_data=(
            cloudwatch.TreatMissingData.MISSING
            if silence_is_bad
            else cloudwatch.TreatMissingData.NOT_BREACHING
        ),
    )
    return _notify(alarm, topic, of_silence=silence_is_bad)


def alarm_on_silence(
    scope: Construct,
    id_: str,
    *,
    metric: cloudwatch.IMetric,
    periods: int,
    description: str,
    topic: sns.ITopic,
    at_first: bool = False,
) -> cloudwatch.Alarm:
    """Notify when `metric`, which counts and has no zeros, had no data for `periods`.

    A metric that never had any is quiet, in the state `INSUFFICIENT_DATA`: what runs each hour or
    day has not run yet after a deployment. With `at_first` it is an alarm as well.
    """
    missing = cloudwatch.TreatMissingData
    alarm = cloudwatch.Alarm(
        scope,
        id_,
        alarm_name=f"{deployment_name(scope)}-{_part(scope, id_)}",
        metric=metric,
        threshold=1,
        evaluation_periods=periods,
        alarm_description=f"{description} {runbook_url(scope, 'Silence')}",
        comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
        treat_missing_data=missing.BREACHING if at_first else missing.MISSING,
    )
    return _notify(alarm, topic, of_silence=not at_first)


def _notify(alarm: cloudwatch.Alarm, topic: sns.ITopic, *, of_silence: bool) -> cloudwatch.Alarm:
    action = actions.SnsAction(topic)
    alarm.add_alarm_action(action)
    alarm.add_ok_action(action)
    if of_silence:
        alarm.add_insufficient_data_action(action)
    return alarm


def _part(scope: Construct, id_: str) -> str:
    """Return the path below the stack in one word, such as `RelayErrors`."""
    path = scope.node.path.removeprefix(Stack.of(scope).node.path)
    return f"{path.replace('/', '')}{id_}"
