"""Log groups that AWS services deliver into by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Aws, Fn, Stack
from aws_cdk import aws_logs as logs

from stacks.components.function import removal_policy, retention_days

if TYPE_CHECKING:
    from constructs import Construct

    from stacks.config import Config


def vended_log_group(scope: Construct, id_: str, *, config: Config, service: str) -> logs.LogGroup:
    """A log group `/aws/vendedlogs/SERVICE/STACK-ID`.

    Each delivery to a group outside this prefix takes a part of the 5,120 characters that a region
    has for the permissions of all of them. The name contains the stack's id, and a failed creation
    leaves nothing, so a group that is left behind does not block the next stack of the same name.
    """
    unique = Fn.select(2, Fn.split("/", Aws.STACK_ID))
    return logs.LogGroup(
        scope,
        id_,
        log_group_name=f"/aws/vendedlogs/{service}/{Stack.of(scope).stack_name}-{unique}",
        retention=retention_days(config.log_retention_days),
        removal_policy=removal_policy(config),
    )
