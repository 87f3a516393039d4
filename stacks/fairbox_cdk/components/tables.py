"""Tables: paid by request, encrypted, recoverable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import aws_dynamodb as dynamodb
from fairbox.tables.keys import PK, SK

from fairbox_cdk.components.retention import removal_policy

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from constructs import Construct

    from fairbox_cdk.config import Config

STRING: Final = dynamodb.AttributeType.STRING


def paid_by_request(
    scope: Construct,
    id_: str,
    *,
    config: Config,
    key: kms.IKey | None,
    stream: dynamodb.StreamViewType | None = None,
    time_to_live_attribute: str | None = None,
    warm_throughput: dynamodb.WarmThroughput | None = None,
) -> dynamodb.Table:
    """A table paid by request, encrypted, recoverable to any second of the last 35 days."""
    return dynamodb.Table(
        scope,
        id_,
        partition_key=dynamodb.Attribute(name=PK, type=STRING),
        sort_key=dynamodb.Attribute(name=SK, type=STRING),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        encryption=(
            dynamodb.TableEncryption.CUSTOMER_MANAGED if key else dynamodb.TableEncryption.DEFAULT
        ),
        encryption_key=key,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        deletion_protection=config.keeps_data,
        removal_policy=removal_policy(config, protected=True),
        stream=stream,
        time_to_live_attribute=time_to_live_attribute,
        warm_throughput=warm_throughput,
    )
