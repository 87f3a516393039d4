"""Settings of a deployment: where they come from, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox_cdk import checks
from fairbox_cdk.config import Config, ConfigError, config_from_context, load_context

from tests.stacks.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def read(**overrides: Any) -> Config:
    return config_from_context(load_context(ROOT / "cdk.json", {}) | overrides)


def test_the_default_profile_keeps_data() -> None:
    assert read().keeps_data
    assert read().removal_policy == "retain"


def test_a_profile_goes_over_the_default_one_and_leaves_the_rest() -> None:
    local = read(profile="local")
    assert not local.keeps_data
    assert local.archive_buffer_seconds < read().archive_buffer_seconds
    assert local.log_level == read().log_level


def test_a_key_of_its_own_goes_over_the_profile() -> None:
    assert read(profile="local", removal_policy="retain").keeps_data


def test_text_from_the_command_line_is_read_as_the_setting_s_type() -> None:
    config = read(
        log_retention_days="90",
        webhook_allow_private="true",
        destinations="arn:aws:sqs:eu-west-1:111122223333:a, arn:aws:sns:eu-west-1:111122223333:b",
    )
    assert config.log_retention_days == 90
    assert config.webhook_allow_private is True
    assert config.destinations == (
        "arn:aws:sqs:eu-west-1:111122223333:a",
        "arn:aws:sns:eu-west-1:111122223333:b",
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("removal_policy", "snapshot"),
        ("name", ""),
        ("name", "Fairbox-Two"),
        ("name", "2nd"),
        ("name", "A" * 21),
        ("account", "1234"),
        ("account", 123456789012),
        ("region", "Ireland"),
        ("alarm_email", "ops"),
        ("alarm_email", "ops@example.com, me@example.com"),
        ("runbook_url", ""),
        ("mark_delivered_window_seconds", 51),
        ("cascade_batches_window_seconds", 60),
        ("alarm_topic_arn", "pager"),
        ("alarm_topic_arn", "arn:aws:sqs:us-east-1:111122223333:pager"),
        ("encryption_key", "arn:aws:kms:us-east-1:111122223333:alias/fairbox"),
        ("encryption_key", "arn:aws:sqs:us-east-1:111122223333:key/a"),
        ("encryption_key", "mine"),
        ("other_keys", "arn:aws:kms:us-east-1:111122223333:alias/fairbox"),
        ("destinations", "*"),
        ("destinations", "arn:aws:sqs:us-east-1:111122223333:*"),
        ("destinations", "arn:aws:s3:us-east-1:111122223333:bucket"),
        ("destinations", "arn:aws:events:us-east-1:111122223333:event-bus/*"),
        ("destinations", "arn:aws:sqs:us-east-1:111122223333:a*b"),
        ("destinations", "arn:aws:kms:us-east-1:111122223333:key/a*"),
        ("destinations", [f"arn:aws:sqs:eu-west-1:111122223333:{'a' * 80}"] * 400),
        ("destinations", 7),
        ("webhook_secrets", ["arn:aws:secretsmanager:us-east-1:111122223333:secret:*"]),
        ("webhook_allow_private", "yes"),
        ("log_level", "LOUD"),
        ("metrics_detail", "most"),
        ("metrics_detail", "Totals"),
        ("log_retention_days", 31),
        ("log_retention_days", "a month"),
        ("log_retention_days", None),
        ("log_retention_days", True),
        ("archive_infrequent_days", 29),
        ("archive_glacier_days", 30),
        ("archive_retention_days", 0),
        ("archive_buffer_mb", 0),
        ("archive_buffer_seconds", 901),
        ("bodies_retention_days", 0),
        ("subnet_ids", "subnet-1"),
        ("subnet_ids", "sg-0a1b2c3d"),
        ("security_group_ids", "sg-0a1b2c3d"),
        ("log_key", "arn:aws:kms:us-east-1:111122223333:alias/logs"),
        ("alarm_topic_key", "create"),
        ("warm_read_units", 100),
        ("warm_write_units", 4000),
        ("relay_parallelization", 11),
        ("mark_delivered_window_seconds", -1),
        ("deliver_shard_concurrency", 1),
        ("visits_apart_concurrency", 1001),
        ("ack_batches_window_seconds", 0),
        ("ack_batches_messages", 10_001),
        ("ack_batches_concurrency", 1),
        ("ack_batches_timeout_seconds", 14),
        ("ack_batches_timeout_seconds", 901),
        ("cascade_batches_window_seconds", 301),
        ("open_batch_days", 6),
        ("sealed_batch_days", 0),
        ("stalled_batch_hours", 0),
        ("clean_orphans_dry_run", "maybe"),
        ("alarm_stalled_batches", -1),
        ("api_rate_limit", 0),
        ("audience_shards", 0),
        ("push_rate", 0),
        ("held_polls", -1),
        ("alarm_dead_count", -1),
        ("alarm_given_up_hours", 0),
        ("alarm_given_up_hours", 360),  # half of the thirty days after which objects expire
    ],
)
def test_what_does_not_fit_is_refused_with_its_key(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key) as refused:
        read(**{key: value})
    assert refused.value.key == key


def test_a_rate_with_which_no_visit_ends_in_time_is_refused() -> None:
    read(push_rate=5000, audience_shards=400)
    with pytest.raises(ConfigError, match=r"is 5000, expected 12\.5 or more") as refused:
        read(push_rate=5000, audience_shards=401)
    assert refused.value.key == "push_rate"


ARN = "arn:aws:{}:{}:111122223333:{}"
QUEUE, KEY = ARN.format("sqs", "eu-west-1", "a"), ARN.format("kms", "eu-west-1", "key/a")
PAGER = ARN.format("sns", "us-east-1", "pager")
SECRET = ARN.format("secretsmanager", "eu-west-1", "secret:hooks-AbCdEf")


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("destinations", {"destinations": [ARN.format("sqs", "eu-west", "a")]}),
        ("destinations", {"destinations": [ARN.format("sqs", "cn-north-1", "a")]}),
        ("webhook_secrets", {"webhook_secrets": [ARN.format("ssm", "west", "parameter/a")]}),
        ("alarm_topic_arn", {"alarm_topic_arn": ARN.format("sns", "us-gov-west-1", "pager")}),
        ("encryption_key", {"encryption_key": ARN.format("kms", "-", "key/a")}),
        ("destinations", {"destinations": [QUEUE, "arn:aws-cn:sqs:cn-north-1:111122223333:a"]}),
        (
            "webhook_secrets",
            {
                "destinations": [QUEUE],
                "webhook_secrets": ["arn:aws-us-gov:ssm:us-gov-west-1:111122223333:parameter/a"],
            },
        ),
        ("alarm_topic_arn", {"encryption_key": KEY, "alarm_topic_arn": PAGER}),
        ("destinations", {"destinations": [QUEUE, ARN.format("kms", "eu-west-2", "key/a")]}),
    ],
)
def test_arns_that_cannot_work_together_are_refused(key: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=key) as refused:
        read(**settings)
    assert refused.value.key == key


@pytest.mark.parametrize(
    "settings",
    [
        {"destinations": [QUEUE, ARN.format("sns", "ap-southeast-4", "b"), KEY]},
        {"destinations": [QUEUE], "alarm_topic_arn": PAGER},
        {"destinations": [KEY], "webhook_secrets": [SECRET]},
        {"destinations": [KEY]},
        {"destinations": [ARN.format("sqs", "eu-west-1", "orders-*")]},
        {"encryption_key": "create", "alarm_topic_arn": PAGER},
        {"destinations": ["arn:aws-cn:sqs:cn-north-1:111122223333:a"]},
    ],
)
def test_arns_of_other_regions_that_may_work_are_taken(settings: dict[str, Any]) -> None:
    read(**settings)


def test_a_detail_that_is_none_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError) as refused:
        read(metrics_detail="most")
    assert str(refused.value) == (
        "setting 'metrics_detail': is 'most', expected one of totals, busiest, all"
    )


@pytest.mark.parametrize(
    ("window", "alarm", "limit"),
    [
        ("mark_delivered_window_seconds", "alarm_iterator_age_ms", 310_000),
        ("cascade_batches_window_seconds", "alarm_iterator_age_ms", 310_000),
        ("archive_buffer_seconds", "alarm_archive_age_seconds", 310),
    ],
)
def test_a_window_that_sets_off_an_alarm_on_age_is_refused(
    window: str, alarm: str, limit: int
) -> None:
    assert getattr(read(**{window: 300, alarm: limit}), window) == 300
    with pytest.raises(ConfigError, match=alarm) as refused:
        read(**{window: 300, alarm: limit - 1})
    assert refused.value.key == window


def test_an_address_for_a_topic_that_is_not_made_is_refused() -> None:
    topic = "arn:aws:sns:us-east-1:111122223333:pager"
    with pytest.raises(ConfigError, match="leave alarm_topic_arn out") as refused:
        read(alarm_topic_arn=topic, alarm_email="ops@example.com")
    assert refused.value.key == "alarm_email"


def test_a_setting_of_the_template_has_a_default() -> None:
    config = read()
    assert (config.name, config.account, config.region) == ("Fairbox", "", "")


def test_an_unknown_profile_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="expected one of default, local"):
        read(profile="staging")


def test_an_unknown_setting_of_a_profile_is_refused() -> None:
    context = load_context(ROOT / "cdk.json", {})
    context["profiles"] = context["profiles"] | {"local": {"archive_days": 3}}
    with pytest.raises(ConfigError, match="archive_days"):
        config_from_context(context | {"profile": "local"})


def test_an_unknown_key_of_the_command_line_is_refused_with_its_like() -> None:
    with pytest.raises(ConfigError, match="did you mean 'encryption_key'"):
        read(encryption_keys="create")
    own = {"aws:cdk:bundling-stacks": [], "@aws-cdk/core:x": True, "acknowledged-issue-numbers": []}
    assert read(**own) == read()


def test_a_file_of_settings_is_a_profile_under_its_name(tmp_path: Path) -> None:
    file = tmp_path / "shop.json"
    file.write_text('{"name": "Shop", "alarm_dead_count": 3}')
    context = load_context(ROOT / "cdk.json", {"log_level": "DEBUG"}, settings=file)
    assert context["profile"] == "shop.json"
    assert config_from_context(context) == read(name="Shop", alarm_dead_count=3, log_level="DEBUG")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('["Shop"]', "no JSON object"),
        ('{"name": ', "cannot be read"),
        ('{"nam": "Shop"}', "'nam': is not a setting; did you mean 'name'"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "shop.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        config_from_context(load_context(ROOT / "cdk.json", {}, settings=file))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_context(ROOT / "cdk.json", {}, settings=tmp_path / "none.json")


def test_private_addresses_are_for_functions_in_a_network_wherever_it_is_deployed() -> None:
    private = read(webhook_allow_private="true")
    private.check_target(None, None)  # synthesised for this machine
    with pytest.raises(ConfigError, match="without subnet_ids") as refused:
        private.check_target(None, "eu-west-1")
    assert refused.value.key == "webhook_allow_private"
    network = {"subnet_ids": "subnet-0a1b2c3d", "security_group_ids": "sg-0a1b2c3d"}
    read(webhook_allow_private="true", **network).check_target("111122223333", "eu-west-1")


def test_every_setting_but_switches_has_a_check() -> None:
    switches = {
        "webhook_allow_private",
        "archive_bodies",
        "reserve_concurrency",
        "clean_orphans_dry_run",
        "pipeline",
        "canary",
        "feeds",
        "tracing",
    }
    assert set(checks.CHECKS) | switches == set(Config.__dataclass_fields__)
