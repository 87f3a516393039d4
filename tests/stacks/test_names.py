"""Two deployments in one account and region: they share no name, no figure, and no grant."""

from __future__ import annotations

import json
import re
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import pytest
from fairbox import settings
from fairbox.model.deployment import DEFAULT_NAME, NAME_LENGTH, parameter_of

from tests.stacks.assembly import listed, plain, variables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stacks.assembly import Assembly

OTHER: Final = "FairboxTwo"
"""It begins like the default's name, so a grant by a prefix would reach it."""
SCOPED: Final = {
    "PolicyName": "of a role",
    "MetricName": "of a namespace",
    "StageName": "of an API",
    "IndexName": "of a table",
    "AttributeName": "of a table",
    "OutputKey": "of a stack",
    "Name of a dimension": "of a metric",
}
"""Names that are unique within something else."""
EVERYBODYS: Final = {
    "arn:aws:cloudwatch:eu-west-1:111122223333:alarm:*": "DescribeAlarms is decided on all alarms",
    "arn:aws:lambda:eu-west-1:111122223333:event-source-mapping:*": "a mapping's name is a UUID",
    "*": "actions that know no resource",
}
"""Grants on more than a deployment's own: descriptions, and actions without a resource."""
RULE: Final = "StepFunctionsGetEventsForEMRServerlessJobRule"
"""The rule that Step Functions makes once in an account."""


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield (name of the property, text) of every text in a template."""
    match value:
        case str():
            yield key, value
        case list():
            for one in value:
                yield from _leaves(one, key)
        case {"Name": str(name), "Value": _} if len(value) == 2:
            yield "Name of a dimension", name
        case dict():
            for name, one in value.items():
                yield from _leaves(one, name)


def _names(assembly: Assembly) -> set[tuple[str, str]]:
    """Every name that the templates fix: of resources and of exports, and of the stacks."""
    found = {("stack", stack) for stack in assembly.templates}
    for template in assembly.templates.values():
        for resource in template["Resources"].values():
            for key, text in _leaves(resource.get("Properties", {})):
                if key.endswith("Name") and key not in SCOPED and key != "Fn::GetAtt":
                    found.add((resource["Type"], text))
        for output in template.get("Outputs", {}).values():
            if "Export" in output:
                found.add(("export", output["Export"]["Name"]))
    return found


def _made(assembly: Assembly) -> Iterator[str]:
    """Yield the ARNs of a deployment's resources, as CloudFormation makes their names."""
    kinds = {
        "AWS::Lambda::Function": "lambda:{}:function:{}",
        "AWS::SQS::Queue": "sqs:{}:{}",
        "AWS::Events::Rule": "events:{}:rule/{}",
        "AWS::DynamoDB::Table": "dynamodb:{}:table/{}",
        "AWS::KinesisFirehose::DeliveryStream": "firehose:{}:deliverystream/{}",
        "AWS::Glue::Database": "glue:{}:database/{}",
        "AWS::SSM::Parameter": "ssm:{}:parameter{}",
    }
    account = "eu-west-1:111122223333"
    for stack, template in assembly.templates.items():
        yield f"arn:aws:cloudformation:{account}:stack/{stack}/0d4e"
        for id_, resource in template["Resources"].items():
            if resource["Type"] in kinds:
                properties = resource["Properties"]
                given = properties.get("DatabaseInput", properties).get("Name")
                name = given or f"{stack}-{id_}-ABCDEF123456"
                yield "arn:aws:" + kinds[resource["Type"]].format(account, name)


def _grants(assembly: Assembly) -> Iterator[tuple[str, str]]:
    """Yield (policy, ARN or pattern) of every grant whose resource is written out."""
    text = {"AWS::Partition": "aws", "AWS::Region": "eu-west-1", "AWS::AccountId": "111122223333"}

    def written(value: Any) -> str:
        match value:
            case str():
                return value
            case {"Ref": name} if name in text:
                return text[name]
            case {"Fn::Join": [separator, parts]}:
                return str(separator).join(written(part) for part in parts)
        return "<made>"

    for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for policy, properties in assembly.of_type(kind).items():
            for statement in properties["PolicyDocument"]["Statement"]:
                for resource in listed(statement["Resource"]):
                    arn = written(resource)
                    if "<made>" not in arn:
                        yield policy, arn


def test_they_share_no_name(assembly: Assembly, other: Assembly) -> None:
    assert len(_names(assembly)) > 90
    assert _names(assembly) & _names(other) == set()
    assert {stack.removeprefix(OTHER) for stack in other.templates} == {
        stack.removeprefix(DEFAULT_NAME) for stack in assembly.templates
    }


def test_a_name_that_is_fixed_by_hand_is_found_by_this_test(assembly: Assembly) -> None:
    kinds = {kind for kind, _ in _names(assembly)}
    assert kinds >= {
        "AWS::Glue::Database",
        "AWS::SSM::Parameter",
        "AWS::CloudWatch::Alarm",
        "AWS::ApiGatewayV2::Api",
        "AWS::SNS::Topic",
        "export",
    }


@pytest.mark.parametrize("way", ["default on other", "other on default"])
def test_no_policy_of_one_reaches_what_the_other_has(
    assembly: Assembly, other: Assembly, way: str
) -> None:
    of, on = (assembly, other) if way.startswith("default") else (other, assembly)
    made = list(_made(on))
    assert len(made) > 30
    reached = {
        (policy, grant, arn)
        for policy, grant in _grants(of)
        for arn in made
        if grant not in EVERYBODYS and fnmatchcase(arn, grant)
    }
    assert reached == set()


def test_a_policy_reaches_its_own(assembly: Assembly) -> None:
    """Otherwise the test above would prove nothing."""
    grants = {grant for policy, grant in _grants(assembly) if policy.endswith("Reader")}
    named = {arn for arn in _made(assembly) for grant in grants if fnmatchcase(arn, grant)}
    kinds = ("cloudformation", "lambda", "sqs", "events", "ssm")
    assert {arn.split(":")[2] for arn in named - {RULE}} >= set(kinds)


def test_their_figures_do_not_mix(assembly: Assembly, other: Assembly) -> None:
    for of, name in ((assembly, DEFAULT_NAME), (other, OTHER)):
        for function in of.functions().values():
            assert variables(function)[settings.METRICS_NAMESPACE] == name
        alarms = of.of_type("AWS::CloudWatch::Alarm").values()
        own = {plain(a["Namespace"]) for a in alarms if "Namespace" in a}
        own |= {
            plain(part["MetricStat"]["Metric"]["Namespace"])
            for a in alarms
            for part in a.get("Metrics", [])
            if "MetricStat" in part
        }
        assert {one for one in own if not one.startswith("AWS/")} == {name}
        (dashboard,) = of.of_type("AWS::CloudWatch::Dashboard").values()
        body = plain(dashboard["DashboardBody"])
        assert set(re.findall(r"SEARCH\('\{(\w+),", body)) == {name}
        assert set(re.findall(r'\[\\?"(Fairbox\w*)\\?",', body)) <= {name}


def test_the_tokens_of_their_daily_runs_differ(assembly: Assembly, other: Assembly) -> None:
    """AWS refuses an export, and repeats a job, whose token it has seen from this account."""
    tokens = []
    for of in (assembly, other):
        (machine,) = of.of_type("AWS::StepFunctions::StateMachine").values()
        text = json.dumps(machine["DefinitionString"])
        tokens.append(set(re.findall(r"States\.Hash\(States\.Format\('[^']*'", text)))
    assert len(tokens[0]) == len(tokens[1]) == 3
    assert tokens[0] & tokens[1] == set()


def test_the_jobs_write_into_the_database_of_their_deployment(other: Assembly) -> None:
    (database,) = other.of_type("AWS::Glue::Database").values()
    name = database["DatabaseInput"]["Name"]
    assert name == OTHER.lower()
    (machine,) = other.of_type("AWS::StepFunctions::StateMachine").values()
    text = json.dumps(machine["DefinitionString"])
    assert text.count(f"--conf spark.fairbox.namespace={name}") == 1


def test_outputs_and_a_parameter_name_every_resource_of_a_variable(assembly: Assembly) -> None:
    outputs = {
        output["Description"]: (key, output["Value"])
        for template in assembly.templates.values()
        for key, output in template.get("Outputs", {}).items()
        if str(output.get("Description", "")).startswith("FAIRBOX_")
    }
    assert set(outputs) == set(settings.DEPLOYED)
    assert outputs[settings.OUTBOX_TABLE][0] == "FairboxOutboxTable"
    (parameter,) = assembly.of_type("AWS::SSM::Parameter").values()
    assert parameter["Name"] == parameter_of(DEFAULT_NAME)
    told = json.loads(plain(parameter["Value"]))
    assert set(told) == set(settings.DEPLOYED)
    assert all(told.values())


def test_a_resource_that_a_function_is_told_of_is_told_to_clients_too(assembly: Assembly) -> None:
    named = {
        key
        for function in assembly.functions().values()
        for key, value in variables(function).items()
        if not isinstance(value, str)
    }
    passed_on = {settings.APART_QUEUE_URL}  # clients ring in the queue that they know
    assert named - passed_on <= set(settings.DEPLOYED)


def test_the_parameter_fits_with_the_longest_names(assembly: Assembly) -> None:
    longest = {"TABLE": 255, "BUCKET": 63, "STREAM": 64, "URL": 160, "NAMESPACE": NAME_LENGTH}
    longest |= {"ARN": 140, "PREFIX": NAME_LENGTH + len("-smoke-")}
    values = {name: "x" * longest[name.rpartition("_")[2]] for name in settings.DEPLOYED}
    assert len(json.dumps(values)) < 4096
    (parameter,) = assembly.of_type("AWS::SSM::Parameter").values()
    assert parameter["Type"] == "String"


@pytest.mark.extended  # a synthesis of its own
def test_the_policies_fit_with_the_longest_name_a_key_and_all_destinations(
    longest: Assembly,
) -> None:
    """IAM takes 6,144 characters, spaces aside, of the policy as it stands in the account.

    A role takes ten such policies, and 10,240 characters of its own.
    """
    long = {
        "AWS::Partition": "aws",
        "AWS::Region": "ap-southeast-2",
        "AWS::AccountId": "111122223333",
    }

    def written(value: Any) -> Any:
        match value:
            case {"Ref": name} if name in long:
                return long[name]
            case {"Ref": _} | {"Fn::GetAtt": _} | {"Fn::ImportValue": _} | {"Fn::Sub": _}:
                return f"arn:aws:dynamodb:ap-southeast-2:111122223333:table/{'x' * 56}"
            case {"Fn::Join": [separator, parts]}:
                return str(separator).join(written(part) for part in parts)
            case dict():
                return {key: written(one) for key, one in value.items()}
            case list():
                return [written(one) for one in value]
        return value

    for name, policy in longest.of_type("AWS::IAM::ManagedPolicy").items():
        text = re.sub(r"\s", "", json.dumps(written(policy["PolicyDocument"])))
        assert 500 < len(text) < 6144, (name, len(text))
    for name, policy in longest.of_type("AWS::IAM::Policy").items():
        text = re.sub(r"\s", "", json.dumps(written(policy["PolicyDocument"])))
        assert len(text) < 10_240, (name, len(text))

    overflows = Counter(
        plain(role)
        for name, policy in longest.of_type("AWS::IAM::ManagedPolicy").items()
        for role in policy.get("Roles", [])
    )
    assert set(overflows) == {"RelayRole", "DeliverShardRole"}
    assert max(overflows.values()) <= 10


@pytest.mark.extended  # a synthesis of its own
def test_a_boundary_and_a_qualifier_of_the_account_are_taken(longest: Assembly) -> None:
    for name, role in longest.of_type("AWS::IAM::Role").items():
        assert "policy/boundary" in str(role["PermissionsBoundary"]), name
    for function in longest.functions().values():
        assert "cdk-acme1-assets" in str(function["Code"]["S3Bucket"])


@pytest.mark.extended  # a synthesis of its own
def test_an_address_is_told_of_alarms(longest: Assembly, assembly: Assembly) -> None:
    (subscription,) = longest.of_type("AWS::SNS::Subscription").values()
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "ops@example.com")
    assert plain(subscription["TopicArn"]) == "AlarmTopic"
    kinds = {resource["Type"] for resource in assembly.resources.values()}
    assert "AWS::SNS::Subscription" not in kinds


@pytest.mark.extended  # a synthesis of its own
def test_nobody_to_tell_is_a_warning_of_the_synthesis(
    assembly: Assembly, longest: Assembly, local_assembly: Assembly
) -> None:
    def warned(of: Assembly) -> bool:
        texts = [path.read_text() for path in of.folder.glob("*.metadata.json")]
        return any("nobody is told of alarms" in text for text in texts)

    assert warned(assembly)
    assert not warned(longest)
    assert not warned(local_assembly)  # it keeps no data
