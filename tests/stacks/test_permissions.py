"""The permissions of roles: what settings add, and what no call of a function shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fairbox_cdk.components import permissions as may

from tests.stacks.assembly import plain
from tests.stacks.conftest import ACCOUNT
from tests.stacks.wildcards import INTERFACES, TRACES
from tests.support.iam.deployment import Deployment
from tests.support.iam.policy import grants_of

if TYPE_CHECKING:
    from tests.stacks.assembly import Assembly

Permissions = dict[str, set[str]]
SEND = {"sqs:SendMessage"}


def test_no_role_has_a_managed_policy(assembly: Assembly) -> None:
    for properties in assembly.of_type("AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in properties


def test_the_local_application_grants_what_a_deployment_grants(
    assembly: Assembly, local_assembly: Assembly
) -> None:
    local, deployed = (
        {name: grants_of(statements) for name, statements in principals.items()}
        for principals in (
            Deployment(found.folder).principals for found in (local_assembly, assembly)
        )
    )
    there = {
        name: {grant for grant in grants if "Feeds" not in f"{grant.resource} {grant.sid}"}
        for name, grants in local.items()
        if name in deployed
    }
    assert there == deployed


def test_firehose_may_write_the_archive_and_its_log(assembly: Assembly) -> None:
    assert assembly.permissions("ArchiveRole") == {
        "ArchiveBucket": {
            "s3:GetBucketLocation",
            "s3:ListBucket",
            "s3:ListBucketMultipartUploads",
        },
        "ArchiveBucket/*": {"s3:PutObject", "s3:GetObject", "s3:AbortMultipartUpload"},
        "ArchiveLogs": {"logs:PutLogEvents"},
    }


def arn(service: str, rest: str) -> str:
    return f"arn:aws:{service}:us-east-1:{ACCOUNT}:{rest}"


FAST: Permissions = {
    arn("sqs", "billing"): SEND,
    arn("sqs", "shipping"): SEND,
    arn("sqs", "orders-*"): SEND,
    arn("sns", "news"): {"sns:Publish"},
    arn("events", "event-bus/orders"): {"events:PutEvents"},
    arn("kinesis", "stream/clicks"): {"kinesis:PutRecords"},
    arn("kms", "key/5b1c"): {"kms:GenerateDataKey", "kms:Decrypt"},
}
SLOW: Permissions = {
    arn("lambda", "function:enrich"): {"lambda:InvokeFunction"},
    arn("secretsmanager", "secret:webhook-AbCdEf"): {"secretsmanager:GetSecretValue"},
    arn("ssm", "parameter/webhooks"): {"ssm:GetParameter"},
}


PUBLISH: Permissions = {
    "Feeds": {f"dynamodb:{a}" for a in ("GetItem", "Query", "PutItem", "UpdateItem")}
}
FEEDS: dict[str, Permissions] = {
    "RelayRole": PUBLISH,
    "DeliverShardRole": PUBLISH,
    "ApiRole": {
        "Tokens": {"secretsmanager:GetSecretValue"},
        "Feeds": PUBLISH["Feeds"] | {"dynamodb:DeleteItem"},
    },
}


def test_a_statement_of_many_destinations_fits_a_policy() -> None:
    queues = [arn("sqs", f"{'q' * 60}-{number}") for number in range(300)]
    found = [one.statement.to_json() for one in may.deliver_to(queues, ("sqs",))]
    assert [name for statement in found for name in statement["Resource"]] == queues
    assert max(len(json.dumps(statement)) for statement in found) < 5000


def test_destinations_of_the_settings_are_opened_to_those_who_deliver_and_nobody_else(
    assembly: Assembly, checked: tuple[Assembly, object]
) -> None:
    added = {"RelayRole": FAST, "DeliverShardRole": FAST | SLOW}
    roles = {plain(function["Role"]) for function in assembly.functions().values()}
    assert roles > added.keys()
    for role in roles:
        expected = assembly.permissions(role) | added.get(role, {}) | FEEDS.get(role, {})
        assert checked[0].permissions(role) == expected | {"*": {*TRACES[:2], *INTERFACES}}, role
