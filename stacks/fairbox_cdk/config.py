"""The settings of a deployment: read by their names or from the CDK context, checked, frozen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

from fairbox_cdk import checks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROFILE: Final = "profile"
PROFILES: Final = "profiles"
DEFAULT_PROFILE: Final = "default"
PROFILE_OUTPUT: Final = "Profile"
"""Output of the stack Delivery: the profile whose settings are deployed."""
_PAIRS: Final = (("warm_read_units", "warm_write_units"), ("subnet_ids", "security_group_ids"))
"""Settings that go together."""


class ConfigError(ValueError):
    """A setting is unknown, or its value is invalid.

    Attributes:
        key: the setting's name.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"setting {key!r}: {reason}")
        self.key = key


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a deployment, each with its default; every name is a context key too.

    Precedence: `-c key=value` (or the key at the top of the context), then the chosen profile,
    then profile `default`, then the default here.
    """

    name: str = "Fairbox"
    """Name of the deployment, letters and digits: its stacks and alarms begin with it."""
    account: str = ""
    """AWS account that this may be deployed to, 12 digits; empty: that of the credentials."""
    region: str = ""
    """AWS region that this may be deployed to; empty: that of the credentials."""
    removal_policy: str = "retain"
    """`retain` keeps tables, buckets and logs when their stack goes; `destroy` deletes
    them, buckets with all their objects."""
    encryption_key: str = ""
    """Key of tables, buckets, queues and archive: an ARN, `create`, or empty for AWS's own."""
    other_keys: tuple[str, ...] = ()
    """ARNs of keys under which older data lie, or which `encryption_key` will name next."""
    alarm_topic_arn: str = ""
    """SNS topic for alarms; empty: one is made."""
    alarm_email: str = ""
    """Address that is told of alarms, when it has confirmed; only with a topic that is made."""
    runbook_url: str = "docs/how-to/runbook.md"
    """Page to which the alarms' descriptions point, such as a copy of this one in your wiki."""
    alarm_topic_key: str = ""
    """ARN of the KMS key of the topic that is made for alarms; empty: none."""
    log_key: str = ""
    """ARN of the KMS key of all log groups; empty: CloudWatch's own."""
    subnet_ids: tuple[str, ...] = ()
    """Subnets of the functions, with their routes to AWS; none: Lambda's own network."""
    security_group_ids: tuple[str, ...] = ()
    """Security groups of the functions in `subnet_ids`."""
    destinations: tuple[str, ...] = ()
    """ARNs that may be delivered to (queues, topics, buses, streams, functions) and their keys.

    They may be of any region and account of the deployment's partition, and end with `*`.
    """
    webhook_allow_private: bool = False
    """Whether webhooks may go to private addresses; on AWS only in `subnet_ids`."""
    webhook_secrets: tuple[str, ...] = ()
    """ARNs of the Secrets Manager secrets and SSM parameters that sign webhooks; none: unsigned."""
    log_level: str = "INFO"
    """Of function `api`; the others log from INFO up."""
    metrics_detail: str = "busiest"
    """Metrics by topic: of no topic (`totals`), of the 20 `busiest`, or of `all`."""
    tracing: bool = False
    """Whether X-Ray traces invocations, without segments of Fairbox's own; see the costs page."""
    log_retention_days: int = 30
    """Of the functions' and the API's logs."""
    archive_bodies: bool = True
    """Whether the archive keeps bodies; without them, only offloaded messages can be replayed."""
    archive_retention_days: int = 730
    """After which events leave the archive, with their bodies."""
    archive_infrequent_days: int = 30
    """After which they move to infrequent access, if they are kept so long; at least 30."""
    archive_glacier_days: int = 180
    """After which they move to Glacier, if they are kept so long."""
    archive_buffer_mb: int = 16
    """Size of Firehose's buffer before it writes an object, of lines that are compressed."""
    archive_buffer_seconds: int = 300
    """Longest buffering time of Firehose."""
    bodies_retention_days: int = 30
    """Retention of an offloaded body after its delivery."""
    failures_retention_days: int = 30
    """Retention of given-up stream batches."""
    access_logs_retention_days: int = 90
    """Of the buckets' access logs."""
    warm_read_units: int = 0
    """RRU/s for which the outbox is pre-warmed; 0: not at all. DynamoDB never lowers it."""
    warm_write_units: int = 0
    """WRU/s for which the outbox is pre-warmed; 0: not at all. DynamoDB never lowers it."""
    relay_parallelization: int = 2
    """Batches of one stream shard that the relay takes at a time."""
    mark_delivered_window_seconds: int = 20
    """Time for which records are gathered before they are marked."""
    deliver_shard_concurrency: int = 50
    """Shared visits at a time, and forwarded doorbells."""
    visits_apart_concurrency: int = 50
    """Visits apart at a time: of single subscriptions that are slow or have `max_in_flight`."""
    ack_batches_window_seconds: int = 5
    """Time for which acks of batches' items are gathered before they are written; from 1."""
    ack_batches_messages: int = 2000
    """Messages of the ack queue in one window at most; each holds up to 1,300 ids."""
    ack_batches_concurrency: int = 5
    """Windows that are written at a time."""
    ack_batches_timeout_seconds: int = 60
    """For one window, from 15; the queue hands it out again after six times as long."""
    cascade_batches_window_seconds: int = 1
    """Time for which emptied groups are gathered before their parents are written."""
    open_batch_days: int = 7
    """Days without activity after which an open batch is reaped; from 7, when the first look is."""
    sealed_batch_days: int = 14
    """Days without activity after which a sealed batch is reaped."""
    clean_orphans_dry_run: bool = False
    """Whether the cleanup only reports what it would do."""
    stalled_batch_hours: int = 24
    """Hours without activity after which a batch counts as stalled."""
    reserve_concurrency: bool = False
    """Whether scheduled functions reserve one execution each, which busy ones cannot take."""
    api_rate_limit: int = 1000
    """Requests a second over all callers, beyond the burst; more are answered with 429."""
    api_burst_limit: int = 2000
    """Requests at once, before the rate counts; the account's own quota bounds both."""
    pipeline: bool = True
    """Whether the data pipeline is deployed."""
    pipeline_hour: int = 3
    """Hour (UTC) of its daily run."""
    pipeline_vcpu: int = 16
    """Most vCPUs of its jobs at a time, with 8 GB of memory each; none while no job runs."""
    canary: bool = False
    """Whether a smoke test runs each quarter of an hour; about a dollar a month."""
    feeds: bool = False
    """Whether feeds are deployed: topics for people's screens."""
    audience_shards: int = 4
    """Shards of the connections of feeds; another number lets each client connect anew."""
    push_rate: int = 5000
    """Frames of feeds a second in all, 100 to 1,000,000; the account's quota is for every API."""
    held_polls: int = 20
    """Polls of feeds that wait for news at a time, 0 to 200; one more is answered at once."""
    alarm_outstanding_count: int = 100_000
    """Messages above which the alarm goes off, after five minutes."""
    alarm_oldest_age_seconds: int = 600
    """Age above which the alarm goes off, after three minutes."""
    alarm_growing_delay_seconds: int = 120
    """Age from which an oldest message that grows older for 15 minutes sets the alarm off."""
    alarm_open_circuits: int = 0
    """Circuits that are open above which the alarm goes off, after five minutes."""
    alarm_iterator_age_ms: int = 60_000
    """Lag of a stream reader above which the alarm goes off, after three minutes."""
    alarm_given_up_hours: int = 6
    """Hours for which stream records could not be replayed above which the alarm goes off."""
    alarm_dead_count: int = 0
    """Dead letters above which the alarm goes off."""
    alarm_stalled_batches: int = 0
    """Batches that neither progress nor complete above which the alarm goes off."""
    alarm_acks_dropped: int = 0
    """Acks that could not be acks, in five minutes, above which the alarm goes off."""
    alarm_lost_receipts: int = 100
    """Receipts that consumers lost, in five minutes, above which the alarm goes off."""
    alarm_archive_age_seconds: int = 3600
    """Age of what has not reached the archive above which the alarm goes off."""

    def __post_init__(self) -> None:
        """Check each value, then their combinations."""
        for key, check in checks.CHECKS.items():
            if reason := check(getattr(self, key)):
                raise ConfigError(key, reason)
        if not self.archive_infrequent_days < self.archive_glacier_days:
            raise ConfigError("archive_glacier_days", "must be over archive_infrequent_days")
        if not self.alarm_given_up_hours < self.failures_retention_days * 12:
            reason = "must be under half of failures_retention_days, which leaves time to act"
            raise ConfigError("alarm_given_up_hours", reason)
        if wrong := checks.check_regions(self):
            raise ConfigError(*wrong)
        if self.push_rate < checks.PUSH_RATE_MINIMUM * self.audience_shards:
            reason = f"expected {checks.PUSH_RATE_MINIMUM} or more for each of audience_shards"
            raise ConfigError("push_rate", f"is {self.push_rate}, {reason}")
        if self.alarm_email and self.alarm_topic_arn:
            reason = "is for a topic that is made here: leave alarm_topic_arn out"
            raise ConfigError("alarm_email", reason)
        self._check_pairs()
        self._check_ages()

    def _check_pairs(self) -> None:
        """Refuse one of two settings that go together."""
        for one, other in _PAIRS:
            if bool(getattr(self, one)) != bool(getattr(self, other)):
                raise ConfigError(other, f"set both {one} and it, or neither")

    def _check_ages(self) -> None:
        """Refuse windows that alone make records so old that an alarm on their age goes off."""
        for key, alarm, per_second in (
            ("mark_delivered_window_seconds", "alarm_iterator_age_ms", 1000),
            ("cascade_batches_window_seconds", "alarm_iterator_age_ms", 1000),
            ("archive_buffer_seconds", "alarm_archive_age_seconds", 1),
        ):
            most = getattr(self, alarm) / per_second - checks.AGE_MARGIN_SECONDS
            if getattr(self, key) > most:
                reason = f"is {getattr(self, key)}, expected {most:g} at most:"
                raise ConfigError(key, f"{reason} over it, {alarm} would go off by itself")

    def check_target(self, account: str | None, region: str | None) -> None:
        """Refuse what cannot be deployed to an account and a region; None: nobody knows it.

        Raises:
            ConfigError: names the setting, and what was found.
        """
        for key, found in (("account", account), ("region", region)):
            wanted = getattr(self, key)
            if wanted and found and found != wanted:
                raise ConfigError(key, f"is {wanted}, and the credentials or the shell say {found}")
        if (account or region) and self.webhook_allow_private and not self.subnet_ids:
            reason = "is true, and without subnet_ids functions reach no private address"
            raise ConfigError("webhook_allow_private", reason)

    @property
    def silent(self) -> bool:
        """Whether nobody is told of alarms about data that are kept."""
        return self.keeps_data and not (self.alarm_email or self.alarm_topic_arn)

    @property
    def smoke_prefix(self) -> str:
        """Beginning of the names of what a smoke test makes."""
        return f"{self.name}-smoke-"

    @property
    def glue_database(self) -> str:
        """Database of the pipeline's tables: Glue's names are in lower case."""
        return self.name.lower()

    @property
    def keeps_data(self) -> bool:
        """Whether data outlive their stack."""
        return self.removal_policy == "retain"


def load_context(
    cdk_json: Path, overrides: Mapping[str, Any], *, settings: Path | None = None
) -> dict[str, Any]:
    """Return the context of `cdk.json`, as the CDK passes it on, with `-c` values over it.

    Args:
        cdk_json: the file of the clone.
        overrides: the `-c` values.
        settings: a file of your own, a JSON object of settings by name: it is the profile that is
            chosen, under the file's name.

    Raises:
        ConfigError: a file cannot be read, or holds something else.
    """
    context = _json_object(cdk_json).get("context")
    if not isinstance(context, dict):
        raise ConfigError("context", f"is missing from {cdk_json.name}")
    if settings:
        own = {settings.name: _json_object(settings)}
        context |= {PROFILE: settings.name, PROFILES: {**context.get(PROFILES, {}), **own}}
    return {**context, **overrides}


def _json_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError("settings", f"cannot be read from {path}: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError("settings", f"in {path} are no JSON object")
    return found


def config_from_context(context: Mapping[str, Any]) -> Config:
    """Read the settings of the chosen profile.

    Raises:
        ConfigError: names the key and what was expected.
    """
    profiles = context.get(PROFILES)
    if not isinstance(profiles, dict) or DEFAULT_PROFILE not in profiles:
        raise ConfigError(PROFILES, f"must hold a profile {DEFAULT_PROFILE!r}")
    name = context.get(PROFILE, DEFAULT_PROFILE)
    if name not in profiles:
        raise ConfigError(PROFILE, f"is {name!r}, expected one of {', '.join(sorted(profiles))}")
    # the CDK's own keys have a colon, a slash or a dash
    ours = {
        key: value
        for key, value in context.items()
        if key.isidentifier() and key not in (PROFILE, PROFILES, PROFILE_OUTPUT)
    }
    return read_settings({**profiles[DEFAULT_PROFILE], **profiles[name], **ours})


def read_settings(given: Mapping[str, Any]) -> Config:
    """Read settings by their names; the others have their defaults.

    Raises:
        ConfigError: names the setting and what was expected.
    """
    types = get_type_hints(Config)
    for key in given:
        if key not in types:
            near = get_close_matches(key, types, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(key, f"is not a setting{hint}")
    return Config(**{key: _read(key, value, types[key]) for key, value in given.items()})


def _read(key: str, value: Any, kind: Any) -> Any:
    """Return one value, from JSON or from text of the command line."""
    if kind is int:
        return _integer(key, value)
    if kind is bool:
        return _boolean(key, value)
    if get_args(kind):
        return _texts(key, value)
    if not isinstance(value, str):
        raise ConfigError(key, f"is {value!r}, expected text")
    return value


def _integer(key: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(value) if isinstance(value, str) else int("")
    except ValueError:
        raise ConfigError(key, f"is {value!r}, expected a whole number") from None


def _boolean(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in {"true", "false"}:
        return bool(value == "true")
    raise ConfigError(key, f"is {value!r}, expected true or false")


def _texts(key: str, value: Any) -> tuple[str, ...]:
    texts = [part for part in value.split(",") if part] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(key, f"is {value!r}, expected a list of texts")
    return tuple(text.strip() for text in texts)
