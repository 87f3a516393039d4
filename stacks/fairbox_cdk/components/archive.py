"""The archive: a bucket of compressed NDJSON by hour, and the Firehose stream that merges it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import CfnElement, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk.aws_kinesisfirehose import CfnDeliveryStream as _Firehose
from constructs import Construct

from fairbox_cdk.components.buckets import private_bucket
from fairbox_cdk.components.log_groups import log_group
from fairbox_cdk.components.nag import acknowledge
from fairbox_cdk.components.permissions import own_service
from fairbox_cdk.components.retention import removal_policy

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms

    from fairbox_cdk.config import Config

PREFIX: Final = "archive/dt=!{timestamp:yyyy-MM-dd}/hour=!{timestamp:HH}/"
ERROR_PREFIX: Final = "errors/!{firehose:error-output-type}/dt=!{timestamp:yyyy-MM-dd}/"
FILE_EXTENSION: Final = ".json.gz"


class Archive(Construct):
    """Every event of every message, in the order in which Firehose gives it.

    Attributes:
        bucket: the objects, `archive/dt=YYYY-MM-DD/hour=HH/*.json.gz` (UTC).
        stream: takes records by `PutRecordBatch`; each must be a gzip member, because the stream's
            quota counts them as they are put. An object is members one after another.
        stream_name: its name.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        config: Config,
        access_logs: s3.IBucket,
        key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id_)
        self.bucket = private_bucket(
            self,
            "Bucket",
            config=config,
            access_logs=access_logs,
            lifecycle_rules=[ageing(config)],
            key=key,
        )
        group = log_group(self, "Logs", config=config)
        log_stream = logs.LogStream(
            self, "LogStream", log_group=group, removal_policy=removal_policy(config)
        )
        self._role = self._make_role(group)
        self._log = _Firehose.CloudWatchLoggingOptionsProperty(
            enabled=True,
            log_group_name=group.log_group_name,
            log_stream_name=log_stream.log_stream_name,
        )
        self.stream = self._stream(config, key)
        # a roll-back would delete it with what it has buffered
        self.stream.apply_removal_policy(removal_policy(config, protected=True))
        self.stream_name = self.stream.ref

    def _stream(self, config: Config, key: kms.IKey | None) -> _Firehose:
        stream = _Firehose(
            self,
            "Members",
            delivery_stream_type="DirectPut",
            delivery_stream_encryption_configuration_input=(
                _Firehose.DeliveryStreamEncryptionConfigurationInputProperty(
                    key_type="CUSTOMER_MANAGED_CMK" if key else "AWS_OWNED_CMK",
                    key_arn=key.key_arn if key else None,
                )
            ),
            extended_s3_destination_configuration=_Firehose.ExtendedS3DestinationConfigurationProperty(
                bucket_arn=self.bucket.bucket_arn,
                role_arn=self._role.role_arn,
                prefix=PREFIX,
                error_output_prefix=ERROR_PREFIX,
                file_extension=FILE_EXTENSION,
                compression_format="UNCOMPRESSED",  # the records are gzip members
                buffering_hints=_Firehose.BufferingHintsProperty(
                    size_in_m_bs=config.archive_buffer_mb,
                    interval_in_seconds=config.archive_buffer_seconds,
                ),
                cloud_watch_logging_options=self._log,
            ),
        )
        stream.node.add_dependency(self._role)
        return stream

    def _make_role(self, log_group: logs.LogGroup) -> iam.Role:
        """Firehose's role: objects of this bucket, lines of this log."""
        role = iam.Role(self, "Role", assumed_by=own_service("firehose.amazonaws.com"))
        objects = self.bucket.arn_for_objects("*")
        for actions, resource in (
            (["s3:PutObject", "s3:GetObject", "s3:AbortMultipartUpload"], objects),
            (
                ["s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads"],
                self.bucket.bucket_arn,
            ),
            (["logs:PutLogEvents"], log_group.log_group_arn),
        ):
            role.add_to_policy(iam.PolicyStatement(actions=actions, resources=[resource]))
        bucket = Stack.of(self).get_logical_id(_resource(self.bucket))
        acknowledge(
            role,
            f"AwsSolutions-IAM5[Resource::<{bucket}.Arn>/*]",
            "Firehose makes the keys of its objects; the bucket holds nothing else.",
        )
        return role


def _resource(bucket: s3.Bucket) -> CfnElement:
    resource = bucket.node.default_child
    if not isinstance(resource, CfnElement):
        raise TypeError(f"{bucket.node.path} has no CloudFormation resource")
    return resource


def ageing(config: Config) -> s3.LifecycleRule:
    """Return cheaper storage classes by age, all readable at once, as the pipeline needs.

    S3 refuses a transition that would not come before the end.
    """
    ages = (
        (s3.StorageClass.INFREQUENT_ACCESS, config.archive_infrequent_days),
        (s3.StorageClass.GLACIER_INSTANT_RETRIEVAL, config.archive_glacier_days),
    )
    return s3.LifecycleRule(
        transitions=[
            s3.Transition(storage_class=storage, transition_after=Duration.days(days))
            for storage, days in ages
            if days < config.archive_retention_days
        ],
        expiration=Duration.days(config.archive_retention_days),
    )
