"""Checks of the settings of a deployment, one per context key; each returns a reason or None."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import InvalidInput
from fairbox.model import deployment
from fairbox.model.feed_types import SHARD_CLIENTS
from fairbox.model.regions import check_reachable, region_of
from fairbox.settings import METRICS_LEVELS

if TYPE_CHECKING:
    from fairbox_cdk.config import Config

Check = Callable[[Any], str | None]

LOG_DAYS: Final = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
"""The retentions that CloudWatch Logs knows."""
DESTINATION_SERVICES: Final = ("sqs", "sns", "events", "kinesis", "lambda", "kms")
DESTINATION_CHARACTERS: Final = 40_000
"""Of all ARNs: a role has room for ten policies of 6,144, and some are not full."""
WARM_READ_MINIMUM: Final = 12_000
WARM_WRITE_MINIMUM: Final = 4_000
PUSH_RATE_MINIMUM: Final = SHARD_CLIENTS / 20
"""Posts a second of an audience shard, whose visit posts for 20 s."""
INFREQUENT_MINIMUM: Final = 30
"""S3 moves no object to infrequent access before its 30th day."""
AGE_MARGIN_SECONDS: Final = 10
"""Time that a record may take beside the window in which it was gathered."""
_ARN: Final = re.compile(r"arn:[a-z-]+:([a-z]+):[a-z0-9-]+:\d{12}:[^\s*?]+")


def _between(low: int, high: int) -> Check:
    def check(value: int) -> str | None:
        return None if low <= value <= high else f"is {value}, expected {low} to {high}"

    return check


def _zero_or_from(low: int) -> Check:
    def check(value: int) -> str | None:
        return None if value == 0 or value >= low else f"is {value}, expected 0 or at least {low}"

    return check


def _one_of(*allowed: Any) -> Check:
    def check(value: Any) -> str | None:
        if value in allowed:
            return None
        return f"is {value!r}, expected one of {', '.join(map(str, allowed))}"

    return check


def _arns(*services: str) -> Check:
    def check(values: tuple[str, ...]) -> str | None:
        for value in values:
            match = _ARN.fullmatch(value)
            if match is None or match[1] not in services:
                return f"holds {value!r}, expected whole ARNs of {', '.join(services)}"
            try:
                region_of(value, value)
            except InvalidInput as error:
                return f"holds {error}"
        return None

    return check


def _destinations(values: tuple[str, ...]) -> str | None:
    # a pattern has a beginning; one key is as good as its pattern
    named = tuple(re.sub(r"(?<=[^:/])\*$", "", v) if ":kms:" not in v else v for v in values)
    if wrong := _arns(*DESTINATION_SERVICES)(named):
        return f"{wrong}, or with * at the end of a name"
    characters = sum(map(len, values))
    if characters > DESTINATION_CHARACTERS:
        return (
            f"holds {len(values)} ARNs of {characters} characters, expected "
            f"{DESTINATION_CHARACTERS} at most, for which a role has room: name several by the "
            "beginning of their names, such as arn:aws:sqs:REGION:ACCOUNT:orders-*"
        )
    return None


def _arn_or_empty(service: str) -> Check:
    whole = _arns(service)

    def check(value: str) -> str | None:
        return whole((value,)) if value else None

    return check


def _is_key(value: str) -> bool:
    return _arns("kms")((value,)) is None and ":key/" in value


def _keys(values: tuple[str, ...]) -> str | None:
    wrong = next((value for value in values if not _is_key(value)), None)
    return None if wrong is None else f"holds {wrong!r}, expected ARNs of keys (not of aliases)"


def _key_or_empty(value: str) -> str | None:
    return _keys((value,)) if value else None


def _ids(prefix: str) -> Check:
    known = re.compile(rf"{prefix}-[0-9a-f]{{8,17}}")

    def check(values: tuple[str, ...]) -> str | None:
        wrong = next((value for value in values if not known.fullmatch(value)), None)
        return None if wrong is None else f"holds {wrong!r}, expected ids such as {prefix}-0a1b2c3d"

    return check


def _key(value: str) -> str | None:
    if value in {"", "create"} or _is_key(value):
        return None
    return f"is {value!r}, expected the ARN of a key (not of an alias), create, or nothing"


def check_regions(config: Config) -> tuple[str, str] | None:
    """Return the setting whose ARNs cannot work beside the others', and the reason; None: all can.

    Nothing of one partition can call another. The key and the alarm topic are used by resources of
    the deployment's own region; a key of destinations by those of its own region.
    """
    home = {key: value for key in _HOME if ":" in (value := getattr(config, key))}
    secrets, destinations = config.webhook_secrets, config.destinations
    given = [*home.items(), *(("destinations", arn) for arn in destinations)]
    given += [("webhook_secrets", arn) for arn in secrets]
    for key, arn in given:
        try:
            check_reachable(arn, region_of(given[0][1]), arn)
        except InvalidInput as error:
            return key, f"holds {error}"
    for key, arn in home.items():
        if region_of(arn) != region_of(next(iter(home.values()))):
            return key, f"is {arn!r}, expected the region of {next(iter(home))}"
    served = {region_of(a) for a in (*destinations, *secrets) if _service(a) != "kms"}
    for arn in destinations:
        if _service(arn) == "kms" and served and region_of(arn) not in served:
            return "destinations", f"holds the key {arn!r}, expected one of a destination's region"
    return None


def _service(arn: str) -> str:
    return arn.split(":")[2]


_HOME: Final = ("encryption_key", "alarm_topic_arn", "alarm_topic_key", "log_key")
"""Settings whose ARNs are of the deployment's own region."""


def _matches(pattern: str, expected: str) -> Check:
    known = re.compile(pattern)

    def check(value: str) -> str | None:
        return None if known.fullmatch(value) else f"is {value!r}, expected {expected}"

    return check


_DAYS: Final = _between(1, 3650)
_COUNT: Final = _between(0, 1_000_000_000)

CHECKS: Final[dict[str, Check]] = {
    "name": _matches(deployment.NAME.pattern, deployment.NAME_EXPECTED),
    "account": _matches(r"(\d{12})?", "an account's 12 digits, or nothing"),
    "region": _matches(r"([a-z]{2}(-[a-z]+)+-\d)?", "a region such as eu-west-1, or nothing"),
    "removal_policy": _one_of("retain", "destroy"),
    "encryption_key": _key,
    "other_keys": _keys,
    "alarm_topic_arn": _arn_or_empty("sns"),
    "alarm_email": _matches(r"([^@\s]+@[^@\s.]+(\.[^@\s.]+)+)?", "an e-mail address, or nothing"),
    "runbook_url": _matches(r"\S+", "a URL or path without spaces"),
    "alarm_topic_key": _key_or_empty,
    "log_key": _key_or_empty,
    "subnet_ids": _ids("subnet"),
    "security_group_ids": _ids("sg"),
    "destinations": _destinations,
    "webhook_secrets": _arns("secretsmanager", "ssm"),
    "log_level": _one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    "metrics_detail": _one_of(*METRICS_LEVELS),
    "log_retention_days": _one_of(*LOG_DAYS),
    "archive_retention_days": _DAYS,
    "archive_infrequent_days": _between(INFREQUENT_MINIMUM, 3650),
    "archive_glacier_days": _DAYS,
    "archive_buffer_mb": _between(1, 128),
    "archive_buffer_seconds": _between(0, 900),
    "bodies_retention_days": _DAYS,
    "failures_retention_days": _DAYS,
    "access_logs_retention_days": _DAYS,
    "warm_read_units": _zero_or_from(WARM_READ_MINIMUM),
    "warm_write_units": _zero_or_from(WARM_WRITE_MINIMUM),
    "relay_parallelization": _between(1, 10),
    "mark_delivered_window_seconds": _between(0, 300),
    "deliver_shard_concurrency": _between(2, 1000),
    "visits_apart_concurrency": _between(2, 1000),
    "ack_batches_window_seconds": _between(1, 300),
    "ack_batches_messages": _between(1, 10_000),
    "ack_batches_concurrency": _between(2, 1000),
    "ack_batches_timeout_seconds": _between(15, 900),
    "cascade_batches_window_seconds": _between(0, 300),
    "open_batch_days": _between(7, 3650),
    "sealed_batch_days": _DAYS,
    "stalled_batch_hours": _between(1, 24 * 365),
    "api_rate_limit": _between(1, 10_000),
    "audience_shards": _between(1, 1_000),
    "push_rate": _between(100, 1_000_000),
    "held_polls": _between(0, 200),
    "api_burst_limit": _between(1, 10_000),
    "pipeline_hour": _between(0, 23),
    "pipeline_vcpu": _between(4, 1_000),
    "alarm_outstanding_count": _COUNT,
    "alarm_oldest_age_seconds": _COUNT,
    "alarm_growing_delay_seconds": _COUNT,
    "alarm_open_circuits": _COUNT,
    "alarm_iterator_age_ms": _COUNT,
    "alarm_given_up_hours": _between(1, 24 * 365),
    "alarm_dead_count": _COUNT,
    "alarm_stalled_batches": _COUNT,
    "alarm_acks_dropped": _COUNT,
    "alarm_lost_receipts": _COUNT,
    "alarm_archive_age_seconds": _COUNT,
}
