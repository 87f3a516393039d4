"""Log groups: kept and encrypted as the settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Aws, Fn, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs

from fairbox_cdk.components.retention import removal_policy

if TYPE_CHECKING:
    from constructs import Construct

    from fairbox_cdk.config import Config


def log_group(
    scope: Construct, id_: str, *, config: Config, name: str | None = None
) -> logs.LogGroup:
    """A log group, by default with a name that CloudFormation makes."""
    key = kms.Key.from_key_arn(scope, f"{id_}Key", config.log_key) if config.log_key else None
    return logs.LogGroup(
        scope,
        id_,
        log_group_name=name,
        retention=_RETENTIONS[config.log_retention_days],
        removal_policy=removal_policy(config),
        encryption_key=key,
    )


def vended_log_group(scope: Construct, id_: str, *, config: Config, service: str) -> logs.LogGroup:
    """A log group `/aws/vendedlogs/SERVICE/STACK-ID`, into which a service delivers by itself.

    Each delivery to a group outside this prefix takes a part of the 5,120 characters that a region
    has for the permissions of all of them. The name contains the stack's id, and a failed creation
    leaves nothing, so a group that is left behind does not block the next stack of the same name.
    """
    unique = Fn.select(2, Fn.split("/", Aws.STACK_ID))
    name = f"/aws/vendedlogs/{service}/{Stack.of(scope).stack_name}-{unique}"
    return log_group(scope, id_, config=config, name=name)


_RETENTIONS: Final = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    120: logs.RetentionDays.FOUR_MONTHS,
    150: logs.RetentionDays.FIVE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    400: logs.RetentionDays.THIRTEEN_MONTHS,
    545: logs.RetentionDays.EIGHTEEN_MONTHS,
    731: logs.RetentionDays.TWO_YEARS,
    1096: logs.RetentionDays.THREE_YEARS,
    1827: logs.RetentionDays.FIVE_YEARS,
    2192: logs.RetentionDays.SIX_YEARS,
    2557: logs.RetentionDays.SEVEN_YEARS,
    2922: logs.RetentionDays.EIGHT_YEARS,
    3288: logs.RetentionDays.NINE_YEARS,
    3653: logs.RetentionDays.TEN_YEARS,
}
