"""A customer's key for all resources with messages, and the narrow permissions to use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import jsii
from aws_cdk import Aws, Duration, IAspect, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from fairbox_cdk.components.retention import removal_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from constructs import Construct, IConstruct

    from fairbox_cdk.config import Config

CREATE: Final = "create"
_READ: Final = ("Decrypt", "DescribeKey")
_WRITE: Final = (*_READ, "Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo")
_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    # a table's items lie under its own key, which DynamoDB unpacks in the caller's name
    **dict.fromkeys(
        ("GetItem", "BatchGetItem", "Query", "Scan", "GetRecords", "ExportTableToPointInTime"),
        _READ,
    ),
    **dict.fromkeys(
        ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "ConditionCheckItem"), _WRITE
    ),
    **dict.fromkeys(("PartiQLInsert", "PartiQLUpdate", "PartiQLDelete"), _WRITE),
    "PutObject": ("GenerateDataKey",),
    # large objects are put in parts, which S3 reads back to put them together
    "AbortMultipartUpload": ("Decrypt", "GenerateDataKey"),
    "GetObject": ("Decrypt",),
    "SendMessage": ("Decrypt", "GenerateDataKey"),
    "ReceiveMessage": ("Decrypt",),
}
_SERVICES: Final = ("dynamodb", "s3", "sqs")


def given_key(scope: Construct, config: Config) -> kms.IKey | None:
    """The key that `encryption_key` names, or None."""
    if config.encryption_key in {"", CREATE}:
        return None
    return kms.Key.from_key_arn(scope, "Key", config.encryption_key)


def created_key(scope: Construct, config: Config) -> kms.Key:
    """A key of the application's own."""
    return kms.Key(
        scope,
        "Key",
        description="Fairbox: tables, buckets, queues and the archive's stream.",
        enable_key_rotation=True,
        pending_window=Duration.days(30),
        removal_policy=removal_policy(config, protected=True),
    )


def key_actions(actions: Iterable[str]) -> dict[str, set[str]]:
    """Return the key actions that these IAM actions need, by the service that uses the key."""
    needed: dict[str, set[str]] = {}
    for action in actions:
        service, _, name = action.partition(":")
        if service in _SERVICES and name in _NEEDS:
            needed.setdefault(service, set()).update(f"kms:{one}" for one in _NEEDS[name])
    return needed


@jsii.implements(IAspect)
class UseKey:
    """An aspect that lets every policy use the keys only through the services that it may use.

    Args:
        keys: ARNs of the key that encrypts the resources, and of those that did or will.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys

    def visit(self, node: IConstruct) -> None:
        """Add the needed key actions to a policy; leave other constructs unchanged."""
        if not isinstance(node, iam.Policy | iam.ManagedPolicy):
            return
        document = Stack.of(node).resolve(node.document) or {}
        for service, needed in sorted(key_actions(_allowed(document)).items()):
            node.add_statements(
                iam.PolicyStatement(
                    sid=f"UseKeyThrough{service.capitalize()}",
                    actions=sorted(needed),
                    resources=list(self._keys),
                    conditions={
                        "StringEquals": {"kms:ViaService": f"{service}.{Aws.REGION}.amazonaws.com"}
                    },
                )
            )


def _allowed(document: dict[str, Any]) -> list[str]:
    found: list[str] = []
    for statement in document.get("Statement", []):
        actions = statement["Action"]
        found += actions if isinstance(actions, list) else [actions]
    return found
