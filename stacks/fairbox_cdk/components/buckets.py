"""Buckets: private, encrypted, only over TLS, with access logs, and nothing left half uploaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Duration
from aws_cdk import aws_s3 as s3

from fairbox_cdk.components.retention import removal_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_kms as kms
    from constructs import Construct

    from fairbox_cdk.config import Config

_ABORT_UPLOADS: Final = s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(7))


def private_bucket(
    scope: Construct,
    id_: str,
    *,
    config: Config,
    access_logs: s3.IBucket | None,
    lifecycle_rules: Sequence[s3.LifecycleRule],
    key: kms.IKey | None = None,
) -> s3.Bucket:
    """A bucket for the application alone; with a key, S3 caches its data keys."""
    return s3.Bucket(
        scope,
        id_,
        encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=key,
        bucket_key_enabled=True if key else None,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        server_access_logs_bucket=access_logs,
        server_access_logs_prefix=f"{id_.lower()}/" if access_logs else None,
        lifecycle_rules=[_ABORT_UPLOADS, *lifecycle_rules],
        removal_policy=removal_policy(config),
        auto_delete_objects=not config.keeps_data,
    )


def access_logs_bucket(scope: Construct, id_: str, *, config: Config) -> s3.Bucket:
    """The bucket of the others' access logs: S3 writes none under a customer's key."""
    return private_bucket(
        scope,
        id_,
        config=config,
        access_logs=None,
        lifecycle_rules=[
            s3.LifecycleRule(expiration=Duration.days(config.access_logs_retention_days))
        ],
    )
