"""Every setting can be changed and changed back: CloudFormation refuses nothing, no data is lost.

Three settings once could not: their change took away an export that deployed stacks imported.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from fairbox_cdk.config import Config, config_from_context, load_context

from scripts.template_changes import changes_of
from tests.stacks.conftest import ROOT, synthesise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stacks.assembly import Assembly

_ARN = "arn:aws:{}:us-east-1:111122223333:{}"
_KEY = _ARN.format("kms", "key/1234abcd-12ab-34cd-56ef-1234567890ab")
OTHER_VALUES: dict[str, tuple[str, ...]] = {
    "name": ("Other",),
    "account": ("111122223333",),
    "region": ("eu-west-1",),
    "removal_policy": ("destroy",),
    "encryption_key": ("create", _KEY),
    "other_keys": (_KEY,),
    "alarm_topic_arn": (_ARN.format("sns", "pager"), _ARN.format("sns", "other")),
    "alarm_email": ("ops@example.com",),
    "runbook_url": ("https://example.com/runbook",),
    "alarm_topic_key": (_KEY,),
    "log_key": (_KEY,),
    "subnet_ids": ("subnet-0a1b2c3d",),
    "security_group_ids": ("sg-0a1b2c3d",),
    "destinations": (",".join((_ARN.format("sqs", "billing"), _ARN.format("sns", "news"))),),
    "webhook_allow_private": ("true",),
    "webhook_secrets": (_ARN.format("secretsmanager", "secret:webhook-AbCdEf"),),
    "log_level": ("DEBUG",),
    "tracing": ("true",),
    "log_retention_days": ("90",),
    "archive_bodies": ("false",),
    "archive_retention_days": ("1825", "1"),
    "archive_infrequent_days": ("60",),
    "archive_glacier_days": ("365",),
    "archive_buffer_mb": ("128",),
    "archive_buffer_seconds": ("900",),
    "bodies_retention_days": ("7",),
    "failures_retention_days": ("60",),
    "access_logs_retention_days": ("30",),
    "warm_read_units": ("12000",),
    "warm_write_units": ("4000",),
    "relay_parallelization": ("10",),
    "mark_delivered_window_seconds": ("5",),
    "deliver_shard_concurrency": ("200",),
    "visits_apart_concurrency": ("200",),
    "ack_batches_window_seconds": ("30",),
    "ack_batches_messages": ("500",),
    "ack_batches_concurrency": ("20",),
    "ack_batches_timeout_seconds": ("120",),
    "cascade_batches_window_seconds": ("5",),
    "open_batch_days": ("30",),
    "sealed_batch_days": ("60",),
    "clean_orphans_dry_run": ("true",),
    "stalled_batch_hours": ("48",),
    "reserve_concurrency": ("true",),
    "api_rate_limit": ("5000",),
    "api_burst_limit": ("5000",),
    "pipeline": ("false",),
    "pipeline_hour": ("5",),
    "pipeline_vcpu": ("64",),
    "canary": ("true",),
    "feeds": ("true",),
    "audience_shards": ("8",),
    "push_rate": ("10000",),
    "held_polls": ("40",),
    "metrics_detail": ("totals", "all"),
    "alarm_given_up_hours": ("48",),
    "alarm_outstanding_count": ("1000",),
    "alarm_oldest_age_seconds": ("60",),
    "alarm_growing_delay_seconds": ("60",),
    "alarm_open_circuits": ("5",),
    "alarm_iterator_age_ms": ("120000",),
    "alarm_dead_count": ("10",),
    "alarm_stalled_batches": ("10",),
    "alarm_acks_dropped": ("10",),
    "alarm_lost_receipts": ("10",),
    "alarm_archive_age_seconds": ("7200",),
}
"""Values of each setting other than its default."""
TOGETHER = {
    "warm_read_units": {"warm_write_units": "4000"},
    "warm_write_units": {"warm_read_units": "12000"},
    "subnet_ids": {"security_group_ids": "sg-0a1b2c3d"},
    "security_group_ids": {"subnet_ids": "subnet-0a1b2c3d"},
}
"""Settings that another one needs beside it."""
BY_DAY = ("alarm_topic_arn", "encryption_key", "pipeline")
DATA = (
    "AWS::DynamoDB::",
    "AWS::Glue::Database",
    "AWS::KMS::Key",
    "AWS::KinesisFirehose::",
    "AWS::S3::Bucket",
    "AWS::S3Tables::",
    "AWS::SNS::Topic",
    "AWS::SQS::Queue",
)
"""Beginnings of the types of resources that hold something, or to which somebody subscribed."""


def outputs(template: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a template's exports by name."""
    found = template.get("Outputs", {}).values()
    return {one["Export"]["Name"]: one["Value"] for one in found if "Export" in one}


def imports(part: Any) -> Iterator[str]:
    """Yield the names of the exports that a part of a template imports."""
    if isinstance(part, dict):
        if "Fn::ImportValue" in part:
            yield part["Fn::ImportValue"]
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from imports(one)


def refusals(before: Assembly, after: Assembly) -> Iterator[str]:
    """Yield what CloudFormation would refuse, and the data that would be lost.

    Stacks that are no longer synthesised stay deployed.
    """
    left = {name: one for name, one in before.templates.items() if name not in after.templates}
    deployed = left | after.templates
    offered = {k: v for template in deployed.values() for k, v in outputs(template).items()}
    former = {k: v for template in before.templates.values() for k, v in outputs(template).items()}
    for name, template in before.templates.items():
        # a stack that exports is updated before those that import
        for export in set(imports(template)):
            if offered.get(export) != former[export]:
                yield f"{name} still imports {export}"
        changes = changes_of(name, template, deployed[name]).resources
        for kind in ("replaced", "removed"):
            for type_, resource in changes[kind]:
                if type_.startswith(DATA):
                    yield f"{name}: {resource} is {kind}"


def test_every_setting_has_another_value() -> None:
    assert set(OTHER_VALUES) == {field.name for field in fields(Config)}
    default = config_from_context(load_context(ROOT / "cdk.json", {}))
    for name, values in OTHER_VALUES.items():
        for value in values:
            overrides = {name: value} | TOGETHER.get(name, {})
            changed = config_from_context(load_context(ROOT / "cdk.json", overrides))
            assert changed != default, name


@pytest.mark.parametrize(
    "setting",
    [
        name if name in BY_DAY else pytest.param(name, marks=pytest.mark.extended)
        for name in OTHER_VALUES
    ],
)
def test_a_setting_is_changed_and_changed_back(
    setting: str, assembly: Assembly, tmp_path_factory: pytest.TempPathFactory
) -> None:
    states = [assembly]
    for value in OTHER_VALUES[setting]:
        overrides = {setting: value} | TOGETHER.get(setting, {})
        states.append(synthesise(tmp_path_factory.mktemp(setting), overrides))

    for before in states:
        for after in states:
            assert list(refusals(before, after)) == []
