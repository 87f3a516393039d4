"""Fairbox in an application of somebody else: several, and in any place of it."""

from __future__ import annotations

import importlib.util
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from fairbox_cdk.node import use_bundled_node

from tests.stacks.assembly import Assembly, listed
from tests.stacks.conftest import ROOT

use_bundled_node()

from aws_cdk import App, Environment, Stack, Stage  # noqa: E402 - after Node is named
from aws_cdk import aws_events as events  # noqa: E402
from aws_cdk import aws_iam as iam  # noqa: E402
from aws_cdk import aws_kinesis as kinesis  # noqa: E402
from aws_cdk import aws_kms as kms  # noqa: E402
from aws_cdk import aws_lambda as lambda_  # noqa: E402
from aws_cdk import aws_sns as sns  # noqa: E402
from aws_cdk import aws_sqs as sqs  # noqa: E402
from fairbox import InvalidInput  # noqa: E402
from fairbox_cdk import ConfigError, Fairbox  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"pipeline": False}
HOME = Environment(account="111122223333", region="eu-west-1")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The example application."""
    spec = importlib.util.spec_from_file_location("example_app", ROOT / "examples/cdk/app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("example")
    module.build(App(outdir=str(folder))).synth()
    return Assembly(folder)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Assembly, Fairbox]:
    """Two deployments in a stack, whose application has none of the CDK's newer flags."""
    folder = tmp_path_factory.mktemp("embedded")
    app = App(outdir=str(folder), context={"@aws-cdk/aws-iam:minimizePolicies": False})
    stack = Stack(app, "Shop", env=HOME)
    outbox = Fairbox(stack, "Outbox", settings=SMALL)
    Fairbox(stack, "Second", settings={**SMALL, "name": "Second"})
    queue = sqs.Queue(stack, "Queue", encryption=sqs.QueueEncryption.KMS)
    function = lambda_.Function(
        stack,
        "Function",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): ..."),
    )
    key = kms.Key(stack, "Key")
    outbox.grant_consume(function, topic="jobs")
    outbox.grant_consume(iam.Role(stack, "Role", assumed_by=iam.AccountRootPrincipal()))
    for destination in (
        queue,
        sns.Topic(stack, "Topic", master_key=key),
        events.EventBus(stack, "Bus"),
        kinesis.Stream(stack, "Stream", encryption_key=key),
        function,
        sqs.Queue.from_queue_arn(stack, "Found", "arn:aws:sqs:eu-west-1:111122223333:found"),
    ):
        outbox.add_destination(destination)
    app.synth()
    return Assembly(folder), outbox


def test_the_example_s_function_may_write_orders_and_publish_and_knows_the_deployment(
    example: Assembly,
) -> None:
    function = example.resources["Shop/PlaceOrder"]["Properties"]
    role = example.resources["Shop/PlaceOrderServiceRole"]["Properties"]

    assert function["Environment"]["Variables"]["FAIRBOX_STACK"] == "ShopOutbox"
    assert [*function["Layers"][0]] == ["Ref"]
    assert "ShopOutboxAccess:ExportsOutputRefProducer" in json.dumps(role["ManagedPolicyArns"])


def test_the_example_s_queue_may_be_delivered_to_by_its_own_stack_s_word(
    example: Assembly,
) -> None:
    granted = granted_in(example, "Shop")
    assert granted["ShopOutbox-relay"] == granted["ShopOutbox-deliver_shard"]
    assert granted["ShopOutbox-relay"] == [
        ("sqs:SendMessage", "Billing"),
        ("kms:GenerateDataKey", "BillingKey"),
        ("kms:Decrypt", "BillingKey"),
    ]
    # so that one stack may publish, and be delivered to
    for name, artifact in example.artifacts.items():
        if name != "Shop":
            assert example.artifacts["Shop"]["id"] not in artifact["dependencies"]


def test_each_kind_of_destination_gets_its_action_with_its_key(
    embedded: tuple[Assembly, Fairbox],
) -> None:
    granted = granted_in(embedded[0], "Shop")
    by_relay = granted["Fairbox-relay"]
    assert set(by_relay) == {
        ("sqs:SendMessage", "Queue"),
        ("sqs:SendMessage", "arn:aws:sqs:eu-west-1:111122223333:found"),
        ("sns:Publish", "Topic"),
        ("events:PutEvents", "Bus"),
        ("kinesis:PutRecords", "Stream"),
        *((f"kms:{a}", k) for a in ("GenerateDataKey", "Decrypt") for k in ("QueueKey", "Key")),
    }
    assert set(granted["Fairbox-deliver_shard"]) - set(by_relay) == {
        ("lambda:InvokeFunction", "Function")
    }


def test_a_consumer_of_a_topic_may_do_the_same_with_that_topic_alone(
    embedded: tuple[Assembly, Fairbox],
) -> None:
    policies = embedded[0].of_type("AWS::IAM::ManagedPolicy")
    of_all, of_jobs = (
        policies[f"FairboxAccess/{name}"]["PolicyDocument"]["Statement"]
        for name in ("Consumer", "Consumerjobs")
    )
    assert of_all.pop()["Sid"] == "ReceiveOverHttp"  # routes that settle know no topic
    assert json.loads(json.dumps(of_jobs).replace("#jobs#*", "#*")) == of_all
    named = re.findall(r'"(\w+#[^"]*)"', json.dumps(of_jobs))
    assert {key.partition("#")[2] for key in named} == {"jobs#*"}


def test_a_deployment_is_the_same_wherever_it_stands(
    embedded: tuple[Assembly, Fairbox], assembly: Assembly
) -> None:
    """And under whichever feature flags; but permissions of Lambda's have other ids."""
    shop, _ = embedded
    for part in ("Storage", "Batches", "Delivery"):
        here, there = (one.templates[f"Fairbox{part}"]["Resources"] for one in (shop, assembly))
        assert shapes(here) == shapes(there)
    names = {one["AlarmName"] for one in shop.of_type("AWS::CloudWatch::Alarm").values()}
    assert {"Fairbox-RelayErrors", "Second-RelayErrors"} <= names
    assert len([name for name in names if name.startswith("Fairbox-")]) == len(embedded[1].alarms)


def shapes(resources: dict[str, Any]) -> dict[str, int]:
    """Return the resources' ids, with the number of each policy's statements."""
    return {
        id_: len(one["Properties"].get("PolicyDocument", {}).get("Statement", []))
        for id_, one in resources.items()
        if one["Type"] != "AWS::Lambda::Permission"
    }


def test_stages_may_have_a_deployment_each_in_their_own_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDK_DEFAULT_REGION", "us-east-1")
    app = App(outdir=str(tmp_path))
    settings = {**SMALL, "region": "eu-west-1"}
    for name in ("Beta", "Production"):
        outbox = Fairbox(Stage(app, name, env=HOME), "Outbox", settings=settings)
        assert (outbox.delivery.account, outbox.delivery.region) == (HOME.account, HOME.region)


def test_what_cannot_be_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Shop", env=HOME)
    outbox = Fairbox(stack, "Outbox", settings=SMALL)

    with pytest.raises(ConfigError, match="'name': is 'fairbox', which another deployment"):
        Fairbox(stack, "Again", settings={**SMALL, "name": "fairbox"})
    with pytest.raises(ConfigError, match="did you mean 'name'"):
        Fairbox(stack, "Misspelt", settings={"nme": "Shop"})
    with pytest.raises(ConfigError, match="'region': is us-east-1"):
        Fairbox(stack, "Elsewhere", settings={"name": "Elsewhere", "region": "us-east-1"})
    with pytest.raises(TypeError, match="destination is Stack, expected a queue"):
        outbox.add_destination(stack)
    with pytest.raises(ValueError, match="into setting destinations"):
        outbox.add_destination(sqs.Queue(Stack(app, "Elsewhere"), "Queue"))
    with pytest.raises(TypeError, match="grantee is Queue, expected a function of yours or a role"):
        outbox.grant_publish(sqs.Queue(stack, "Queue"))
    with pytest.raises(InvalidInput, match="topic"):
        outbox.grant_consume(iam.Role(stack, "R", assumed_by=iam.AnyPrincipal()), topic="a#b")


def granted_in(assembly: Assembly, stack: str) -> dict[str, list[tuple[str, str]]]:
    """Return actions and resources that policies of a stack grant, by the role as it knows it."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, policy in assembly.of_type("AWS::IAM::Policy").items():
        if not name.startswith(f"{stack}/") or "ImportValue" not in json.dumps(policy["Roles"]):
            continue
        (role,) = policy["Roles"]
        function = "relay" if "RelayRole" in json.dumps(role) else "deliver_shard"
        deployment = role["Fn::ImportValue"].partition("Delivery:")[0]
        found[f"{deployment}-{function}"] = [
            (action, resource_name(statement["Resource"]))
            for statement in policy["PolicyDocument"]["Statement"]
            for action in listed(statement["Action"])
        ]
    return found


def resource_name(resource: Any) -> str:
    """Return a resource's logical id without its hash, or its ARN."""
    if isinstance(resource, str):
        return resource
    id_ = resource.get("Ref") or resource["Fn::GetAtt"][0]
    return str(id_)[:-8]
