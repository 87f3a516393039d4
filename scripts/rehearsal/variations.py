"""Settings of a deployment, each with the values that the rehearsal changes it to."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from stacks.config import Config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Overrides = dict[str, str]
"""Context values over the profile `default`, as `-c` gives them."""
_ARN: Final = "arn:aws:{}:us-east-1:111122223333:{}"
_KEY: Final = _ARN.format("kms", "key/1234abcd-12ab-34cd-56ef-1234567890ab")
OTHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("Other",),
    "account": ("111122223333",),
    "region": ("eu-west-1",),
    "removal_policy": ("destroy",),
    "encryption_key": ("create", _KEY),
    "other_keys": (_KEY,),
    "alarm_topic_arn": (_ARN.format("sns", "pager"), _ARN.format("sns", "other")),
    "alarm_email": ("ops@example.com",),
    "runbook_url": ("https://example.com/runbook",),
    "destinations": (",".join((_ARN.format("sqs", "billing"), _ARN.format("sns", "news"))),),
    "webhook_allow_private": ("true",),
    "webhook_secrets": (_ARN.format("secretsmanager", "secret:webhook-AbCdEf"),),
    "log_level": ("DEBUG",),
    "log_retention_days": ("90",),
    "archive_retention_days": ("1825",),
    "archive_infrequent_days": ("60",),
    "archive_glacier_days": ("365",),
    "archive_buffer_mb": ("128",),
    "archive_buffer_seconds": ("900",),
    "bodies_retention_days": ("7",),
    "failures_retention_days": ("60",),
    "access_logs_retention_days": ("30",),
    "warm_read_units": ("12000", "24000"),
    "warm_write_units": ("4000", "8000"),
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
    "reserve_concurrency": ("false", "true"),
    "api_rate_limit": ("5000",),
    "api_burst_limit": ("5000",),
    "pipeline": ("false",),
    "pipeline_hour": ("5",),
    "pipeline_vcpu": ("64",),
    "canary": ("true",),
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
"""Values of each setting that its default is changed to, and back from; the default may be one."""
_WITH: Final[Mapping[str, Overrides]] = {
    "warm_read_units": {"warm_write_units": "4000"},
    "warm_write_units": {"warm_read_units": "12000"},
}
"""Settings that another one needs beside it."""

_EXCLUSIVE: Final = frozenset({"alarm_email"})
"""Settings that exclude another one, and so are not among all settings at once."""


class NoValuesError(ValueError):
    """A setting has no other value here, or a value has no setting; the message names it."""


def variations() -> Iterator[tuple[str, tuple[Overrides, ...]]]:
    """Yield each setting with what it is changed to, then all settings at once.

    Raises:
        NoValuesError: `OTHERS` and the fields of `Config` differ.
    """
    names = [field.name for field in fields(Config)]
    if wrong := sorted(set(names) ^ set(OTHERS)):
        raise NoValuesError(
            f"{', '.join(wrong)}: each setting needs another value in scripts/rehearsal/"
            "variations.py, and each value a setting"
        )
    for name in names:
        yield name, tuple({name: value} | _WITH.get(name, {}) for value in OTHERS[name])
    together = {name: OTHERS[name][0] for name in names if name not in _EXCLUSIVE}
    yield "every setting", (together,)


def title(overrides: Mapping[str, str]) -> str:
    """Return overrides in one short line."""
    if not overrides:
        return "the defaults"
    if len(overrides) > 2:
        return f"{len(overrides)} settings changed"
    return ", ".join(f"{key}={_short(value)}" for key, value in overrides.items())


def _short(text: str) -> str:
    return text if len(text) <= 40 else json.dumps(f"{text[:18]}...{text[-18:]}")
