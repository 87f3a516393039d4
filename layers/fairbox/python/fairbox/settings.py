"""Settings: the only place that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from fairbox.errors import InvalidInput, NotConfigured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STACK: Final = "FAIRBOX_STACK"
"""Name of a deployment, whose parameter `/fairbox/NAME` gives the variables that are not set."""
METRICS_NAMESPACE: Final = "FAIRBOX_METRICS_NAMESPACE"
"""The namespace of the metrics. Default: `FAIRBOX_STACK`, else `Fairbox`."""
OUTBOX_TABLE: Final = "FAIRBOX_OUTBOX_TABLE"
"""The outbox table. Needed by every function and by `Outbox.from_env`."""
BATCHES_TABLE: Final = "FAIRBOX_BATCHES_TABLE"
"""The batches table. Needed by `Batches.from_env` and by the functions of batches."""
ACK_QUEUE_URL: Final = "FAIRBOX_ACK_QUEUE_URL"
"""The queue of items to ack, which `ack_batches` reads."""
FEEDS_TABLE: Final = "FAIRBOX_FEEDS_TABLE"
"""The feeds table. Needed by `Feeds.from_env` and for destinations `feed:`."""
FEEDS_SECRET: Final = "FAIRBOX_FEEDS_SECRET"  # noqa: S105 - its name
"""The secret that signs tokens of feeds' clients. Needed by `Feeds.token` and the HTTP API."""
FEEDS_URL: Final = "FAIRBOX_FEEDS_URL"
"""The address to which clients of feeds connect, `wss://...`."""
FEEDS_QUEUE_URL: Final = "FAIRBOX_FEEDS_QUEUE_URL"
"""The FIFO queue of the doorbells of feeds, for `feeds_ring`."""
AUDIENCE_SHARDS: Final = "FAIRBOX_AUDIENCE_SHARDS"
"""Shards of the connections of feeds, for `feeds_connect` and `feeds_visit`. Default 4."""
PUSH_RATE: Final = "FAIRBOX_PUSH_RATE"
"""Frames that `feeds_visit` sends a second, over all audience shards. Default 5000."""
HELD_POLLS: Final = "FAIRBOX_HELD_POLLS"
"""Polls of feeds that `feeds_poll` holds at a time. Default 20."""
DELIVERIES_TABLE: Final = "FAIRBOX_DELIVERIES_TABLE"
"""The deliveries table. Needed by every function and by `Outbox.from_env`."""
BODIES_BUCKET: Final = "FAIRBOX_BODIES_BUCKET"
"""The bucket of bodies that do not fit an item; without it such bodies are refused."""
DOORBELL_QUEUE_URL: Final = "FAIRBOX_DOORBELL_QUEUE_URL"
"""The FIFO queue that asks for visits; without it `Outbox.sweep` is refused."""
LATER_QUEUE_URL: Final = "FAIRBOX_LATER_QUEUE_URL"
"""The standard queue of doorbells for later; needed by `relay` and `deliver_shard`."""
APART_QUEUE_URL: Final = "FAIRBOX_APART_QUEUE_URL"
"""The FIFO queue of visits apart, of `deliver_shard`; without it the doorbell queue has them."""
ARCHIVE_STREAM: Final = "FAIRBOX_ARCHIVE_STREAM"
"""The Firehose stream of the archive; needed by `mark_delivered` and `repair`."""
ARCHIVE_BUCKET: Final = "FAIRBOX_ARCHIVE_BUCKET"
"""The archive's bucket, for what Firehose does not take and for jobs: `s3://BUCKET/archive`."""
ARCHIVE_BODIES: Final = "FAIRBOX_ARCHIVE_BODIES"
"""`false`: the archive keeps messages without their bodies. Default `true`."""
FAILURES_BUCKET: Final = "FAIRBOX_FAILURES_BUCKET"
"""The bucket of what could not be done yet; needed by `mark_delivered` and `repair`."""
API_URL: Final = "FAIRBOX_API_URL"
"""The URL of the HTTP API, for its clients; the library does not use it."""
WEBHOOK_ALLOW_PRIVATE: Final = "FAIRBOX_WEBHOOK_ALLOW_PRIVATE"
"""`true`: webhooks may use `http` and go to private addresses. Default `false`."""
WEBHOOK_SECRETS: Final = "FAIRBOX_WEBHOOK_SECRETS"
"""ARNs of secrets and SSM parameters that sign webhooks, with commas between; none: unsigned."""
SWEEP_FUNCTION_ARN: Final = "FAIRBOX_SWEEP_FUNCTION_ARN"
"""The ARN of function `sweep`, which `fairbox smoke` lets a message invoke."""
SMOKE_PREFIX: Final = "FAIRBOX_SMOKE_PREFIX"
"""Beginning of the names of what a smoke test makes, which the functions may send to."""
OPEN_BATCH_DAYS: Final = "FAIRBOX_OPEN_BATCH_DAYS"
"""Days without activity after which `clean_orphans` reaps an open batch, from 7. Default 7."""
SEALED_BATCH_DAYS: Final = "FAIRBOX_SEALED_BATCH_DAYS"
"""Days without activity after which `clean_orphans` reaps a sealed batch. Default 14."""
STALLED_BATCH_HOURS: Final = "FAIRBOX_STALLED_BATCH_HOURS"
"""Hours without activity after which `clean_orphans` counts a batch as stalled. Default 24."""
CLEAN_ORPHANS_DRY_RUN: Final = "FAIRBOX_CLEAN_ORPHANS_DRY_RUN"
"""`true`: `clean_orphans` reports what it would do, and changes nothing. Default `false`."""
METRICS_DETAIL: Final = "FAIRBOX_METRICS_DETAIL"
"""Metrics by topic: of no topic (`totals`), of the `busiest`, or of `all`. Default `busiest`."""

RUNTIME_API: Final = "AWS_LAMBDA_RUNTIME_API"
"""The address at which a process that Lambda starts asks for its events; AWS sets it."""
REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")

MetricsLevel = Literal["totals", "busiest", "all"]
METRICS_LEVELS: Final[tuple[MetricsLevel, ...]] = get_args(MetricsLevel)


DEPLOYED: Final = (
    OUTBOX_TABLE,
    DELIVERIES_TABLE,
    BATCHES_TABLE,
    ACK_QUEUE_URL,
    BODIES_BUCKET,
    DOORBELL_QUEUE_URL,
    LATER_QUEUE_URL,
    ARCHIVE_STREAM,
    ARCHIVE_BUCKET,
    FAILURES_BUCKET,
    METRICS_NAMESPACE,
    API_URL,
    SWEEP_FUNCTION_ARN,
    SMOKE_PREFIX,
)
"""The variables that a deployment's outputs and its parameter give: names of its resources."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The environment of a process; a name that is needed and missing raises with that name.

    Attributes:
        values: the environment's variables.
    """

    values: Mapping[str, str]

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Return the settings of this process, or of the mapping given."""
        return cls(dict(os.environ if environment is None else environment))

    def required(self, name: str) -> str:
        """Return the value.

        Raises:
            NotConfigured: it is missing or empty.
        """
        value = self.values.get(name, "")
        if not value:
            raise NotConfigured(name)
        return value

    def optional(self, name: str) -> str | None:
        """Return the value; None when it is missing or empty."""
        return self.values.get(name) or None

    @property
    def region(self) -> str | None:
        """The region of `AWS_REGION`, else of `AWS_DEFAULT_REGION`; None: that of the profile.

        boto3 reads `AWS_DEFAULT_REGION` alone, other SDKs `AWS_REGION`.
        """
        return next(filter(None, map(self.optional, REGIONS)), None)

    def lacks(self, names: Iterable[str]) -> bool:
        """Return whether one of the values is missing or empty."""
        return not all(self.values.get(name) for name in names)

    def over(self, values: Mapping[str, str]) -> Settings:
        """Return these settings, with other values for those that are missing or empty."""
        return Settings({**values, **{k: v for k, v in self.values.items() if v}})

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return whether the value is `true`; `default` when it is missing or empty.

        Raises:
            InvalidInput: it is neither.
        """
        value = self.values.get(name, "") or str(default).lower()
        if value not in ("true", "false"):
            raise InvalidInput(name, "'true' or 'false'")
        return value == "true"

    @property
    def metrics_level(self) -> MetricsLevel:
        """The topics that metrics are written of; `busiest` when it is missing or empty.

        Raises:
            InvalidInput: it is none of the three.
        """
        given = self.values.get(METRICS_DETAIL, "") or "busiest"
        for level in METRICS_LEVELS:
            if given == level:
                return level
        raise InvalidInput(METRICS_DETAIL, "'totals', 'busiest' or 'all'")

    def whole(self, name: str, default: int) -> int:
        """Return the value as a whole number from 1; `default` when it is missing or empty.

        Raises:
            InvalidInput: it is anything else.
        """
        text = self.values.get(name, "") or str(default)
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise InvalidInput(name, "a whole number from 1")
        return int(text)


def state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return where programs of this user keep what they remember, after the XDG rules."""
    values = os.environ if environment is None else environment
    given = Path(values.get("XDG_STATE_HOME") or "")
    # a path that is not absolute is to be ignored
    return given / "fairbox" if given.is_absolute() else Path.home() / ".local/state/fairbox"
