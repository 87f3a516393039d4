"""Regions of ARNs and queues, and what cannot be called from where."""

from __future__ import annotations

import pytest
from botocore.session import Session
from fairbox import InvalidInput, Subscription
from fairbox.model.regions import check_reachable, partition_of, region_of
from fairbox.model.topics import Topic
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication

ACCOUNT = "123456789012"
LONG = f"vpce-0a1b2c-xyz.sqs.eu-west-1.vpce.amazonaws.com/{ACCOUNT}/q"


@pytest.mark.parametrize(
    ("address", "region"),
    [
        (f"arn:aws:sns:eu-west-1:{ACCOUNT}:t", "eu-west-1"),
        (f"arn:aws-us-gov:lambda:us-gov-west-1:{ACCOUNT}:function:f", "us-gov-west-1"),
        (f"arn:aws-cn:kinesis:cn-northwest-1:{ACCOUNT}:stream/s", "cn-northwest-1"),
        (f"arn:aws-iso-b:sqs:us-isob-east-1:{ACCOUNT}:q", "us-isob-east-1"),
        (f"https://sqs.ap-southeast-5.amazonaws.com/{ACCOUNT}/q", "ap-southeast-5"),
        (f"https://SQS.eu-west-1.amazonaws.com:443/{ACCOUNT}/q.fifo", "eu-west-1"),
        (f"https://sqs.cn-north-1.amazonaws.com.cn/{ACCOUNT}/q", "cn-north-1"),
        (f"https://sqs-fips.us-east-2.amazonaws.com/{ACCOUNT}/q", "us-east-2"),
        (f"https://sqs-fips.us-east-2.api.aws/{ACCOUNT}/q", "us-east-2"),
        (f"https://sqs.eusc-de-east-1.amazonaws.eu/{ACCOUNT}/q", "eusc-de-east-1"),
        (f"https://{LONG}", "eu-west-1"),
        (f"https://vpce-0a1b2c-xyz-eu-west-1a.{LONG.partition('.')[2]}", "eu-west-1"),
        (f"https://eu-west-1.queue.amazonaws.com/{ACCOUNT}/q", "eu-west-1"),
        (f"https://cn-north-1.queue.amazonaws.com.cn/{ACCOUNT}/q", "cn-north-1"),
        (f"https://queue.amazonaws.com/{ACCOUNT}/q", "us-east-1"),
        (f"http://sqs.eu-west-1.localhost.localstack.cloud:4566/{ACCOUNT}/q", "eu-west-1"),
    ],
)
def test_the_region_is_read_from_an_arn_or_a_url(address: str, region: str) -> None:
    assert region_of(address) == region


@pytest.mark.parametrize(
    "address",
    [
        f"http://127.0.0.1:4566/{ACCOUNT}/q",
        f"http://[::1]:4566/{ACCOUNT}/q",
        f"http://localhost:4566/{ACCOUNT}/q",
        f"http://sqs:9324/{ACCOUNT}/q",
        f"https://sqs.internal.example/{ACCOUNT}/q",
        f"https://moto-1234567890.eu-west-1.elb.amazonaws.com/{ACCOUNT}/q",
        f"https://sqs.amazonaws.com/{ACCOUNT}/q",
        "default",
        "billing",
    ],
)
def test_an_endpoint_of_its_own_and_a_name_have_no_region(address: str) -> None:
    assert region_of(address) is None
    check_reachable(address, "eu-west-1")


@pytest.mark.parametrize(
    "address",
    [
        f"arn:aws:sns:eu-west:{ACCOUNT}:t",
        f"arn:aws:sns::{ACCOUNT}:t",
        f"arn:aws:sns:cn-north-1:{ACCOUNT}:t",
        f"arn:aws-cn:sns:eu-west-1:{ACCOUNT}:t",
        f"https://sqs.eu-west.amazonaws.com/{ACCOUNT}/q",
        f"https://sqs.eu_west_1.amazonaws.com.cn/{ACCOUNT}/q",
        f"https://west.queue.amazonaws.com/{ACCOUNT}/q",
    ],
)
def test_what_is_no_region_is_refused_by_its_field(address: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        region_of(address)
    assert refused.value.field == "destination"


def test_partitions_are_those_of_the_sdk() -> None:
    session = Session()
    for partition in session.get_available_partitions():
        for region in session.get_available_regions("sqs", partition):
            assert partition_of(region) == partition
            assert region_of(f"https://sqs.{region}.example/{ACCOUNT}/q") == region


@pytest.mark.parametrize(
    ("home", "there", "possible"),
    [
        ("us-east-1", "eu-west-1", True),
        ("us-east-1", "us-gov-west-1", False),
        ("cn-north-1", "eu-west-1", False),
        ("cn-north-1", "cn-northwest-1", True),
        (None, "cn-north-1", True),
        ("local", "cn-north-1", True),
    ],
)
def test_only_the_own_partition_can_be_called(home: str | None, there: str, possible: bool) -> None:
    arn = f"arn:{partition_of(there)}:sns:{there}:{ACCOUNT}:t"
    if possible:
        check_reachable(arn, home)
        return
    with pytest.raises(InvalidInput, match=f"{there} is of {partition_of(there)}"):
        check_reachable(arn, home)


class InIreland(CostMeter):
    """A client with a region, as boto3's have one."""

    class meta:  # noqa: N801 - boto3's name
        region_name = "eu-west-1"


@pytest.mark.parametrize(
    "address",
    [
        f"sns:arn:aws:sns:eu-west:{ACCOUNT}:t",
        f"sqs:https://sqs.nowhere.amazonaws.com/{ACCOUNT}/q",
        f"lambda:arn:aws-us-gov:lambda:us-gov-east-1:{ACCOUNT}:function:f",
    ],
)
def test_a_subscription_that_cannot_work_is_refused_and_nothing_is_added(address: str) -> None:
    app = MemoryApplication(wrap=InIreland)
    app.outbox.create_topic(Topic("orders"))
    good = Subscription("orders", "a", f"sns:arn:aws:sns:us-east-1:{ACCOUNT}:t")
    with pytest.raises(InvalidInput) as refused:
        app.outbox.add_subscriptions([good, Subscription("orders", "b", address)])
    assert refused.value.field == "destination"
    assert app.outbox.topic("orders").subscriptions == ()


def test_a_subscription_of_a_partition_is_taken_where_the_own_is_not_known() -> None:
    app = MemoryApplication()
    app.outbox.create_topic(Topic("orders"))
    address = f"sns:arn:aws-cn:sns:cn-north-1:{ACCOUNT}:t"
    app.outbox.add_subscription(Subscription("orders", "a", address))
