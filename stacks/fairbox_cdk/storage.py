"""Stack of the stored data: tables, archive and its stream, buckets, alarm topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from fairbox.tables import batch_records as batch_codec
from fairbox.tables.keys import EXPIRES_AT
from fairbox.tables.ledger import DELIVERED_INDEX, LEDGER_DAY, LEDGER_TIME
from fairbox.tables.shard_rows import BUCKET, LOOK_AT, OUTSTANDING_INDEX, PROJECTED_COUNTS

from fairbox_cdk.components.archive import Archive
from fairbox_cdk.components.buckets import access_logs_bucket, private_bucket
from fairbox_cdk.components.daily_run import EXPORTS
from fairbox_cdk.components.encryption import given_key
from fairbox_cdk.components.permissions import FAILURES_PREFIX, own_service
from fairbox_cdk.components.stack import DeploymentStack
from fairbox_cdk.components.tables import STRING, paid_by_request

if TYPE_CHECKING:
    from constructs import Construct

    from fairbox_cdk.config import Config

_NUMBER = dynamodb.AttributeType.NUMBER
_EXPORT_DAYS = 7


class StorageStack(DeploymentStack):
    """The resources that outlive a deployment.

    Attributes:
        outbox: messages that are outstanding, shard rows, topic rows; streamed.
        deliveries: the ledger, dead letters, deduplication rows.
        batches: the batches' trees; streamed.
        archive: every event of every message, as NDJSON in S3, through Firehose.
        bodies: bodies too large for the table.
        failures: stream batches that were given up, with their records, and what waits for the
            archive.
        warehouse: the pipeline's tables, and snapshots of the outbox.
        alarm_topic: receives the alarms.
        key: encrypts everything except alarm topic and access logs; None: AWS's keys.
    """

    def __init__(
        self, scope: Construct, part: str, *, config: Config, created_key: kms.IKey | None = None
    ) -> None:
        super().__init__(
            scope,
            part,
            description="Fairbox: tables, archive and buckets.",
            termination_protection=config.keeps_data,
        )
        self.key = created_key or given_key(self, config)
        self.outbox = self._outbox(config)
        self.deliveries = self._deliveries(config)
        self.batches = self._batches(config)
        access_logs = access_logs_bucket(self, "AccessLogs", config=config)
        self.archive = Archive(
            self, "Archive", config=config, access_logs=access_logs, key=self.key
        )
        self.bodies = private_bucket(
            self,
            "Bodies",
            config=config,
            access_logs=access_logs,
            lifecycle_rules=[
                # what is not delivered is never expired, however old it is
                s3.LifecycleRule(
                    tag_filters={"fairbox": "delivered"},
                    expiration=Duration.days(config.bodies_retention_days),
                ),
            ],
            key=self.key,
        )
        self.failures = private_bucket(
            self,
            "Failures",
            config=config,
            access_logs=access_logs,
            lifecycle_rules=[
                # what waits for the archive has another prefix, and never expires
                s3.LifecycleRule(
                    prefix=f"{FAILURES_PREFIX}/",
                    expiration=Duration.days(config.failures_retention_days),
                )
            ],
            key=self.key,
        )
        self.warehouse = self._warehouse(config, access_logs)
        self.alarm_topic = self._alarm_topic(config)
        CfnOutput(self, "AlarmTopicArn", value=self.alarm_topic.topic_arn)
        # an export cannot go while a stack imports it: a pipeline that is no longer wanted stays
        # deployed, and this stack is updated before those that import its other resources
        for imported in (
            self.archive.bucket.bucket_name,
            self.warehouse.bucket_arn,
            self.warehouse.bucket_name,
        ):
            self.export_value(imported)

    def _outbox(self, config: Config) -> dynamodb.Table:
        """No TTL and no local index: nothing expires undelivered, and partitions can split."""
        table = paid_by_request(
            self,
            "Outbox",
            config=config,
            key=self.key,
            stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES,
            warm_throughput=(
                dynamodb.WarmThroughput(
                    read_units_per_second=config.warm_read_units,
                    write_units_per_second=config.warm_write_units,
                )
                if config.warm_write_units
                else None
            ),
        )
        table.add_global_secondary_index(
            index_name=OUTSTANDING_INDEX,
            partition_key=dynamodb.Attribute(name=BUCKET, type=STRING),
            sort_key=dynamodb.Attribute(name=LOOK_AT, type=_NUMBER),
            projection_type=dynamodb.ProjectionType.INCLUDE,
            non_key_attributes=list(PROJECTED_COUNTS),
        )
        return table

    def _deliveries(self, config: Config) -> dynamodb.Table:
        table = paid_by_request(
            self,
            "Deliveries",
            config=config,
            key=self.key,
            time_to_live_attribute=EXPIRES_AT,
        )
        table.add_global_secondary_index(
            index_name=DELIVERED_INDEX,
            partition_key=dynamodb.Attribute(name=LEDGER_DAY, type=STRING),
            sort_key=dynamodb.Attribute(name=LEDGER_TIME, type=_NUMBER),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )
        return table

    def _batches(self, config: Config) -> dynamodb.Table:
        """Only the rest of a batch's root expires; the functions erase a tree, in order."""
        table = paid_by_request(
            self,
            "Batches",
            config=config,
            key=self.key,
            stream=dynamodb.StreamViewType.NEW_IMAGE,
            time_to_live_attribute=batch_codec.EXPIRES_AT,
        )
        table.add_global_secondary_index(
            index_name=batch_codec.OPEN_BATCHES_INDEX,
            partition_key=dynamodb.Attribute(name=batch_codec.BUCKET, type=STRING),
            sort_key=dynamodb.Attribute(name=batch_codec.NEXT_CHECK, type=_NUMBER),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )
        return table

    def _warehouse(self, config: Config, access_logs: s3.IBucket) -> s3.Bucket:
        bucket = private_bucket(
            self,
            "Warehouse",
            config=config,
            access_logs=access_logs,
            lifecycle_rules=[
                s3.LifecycleRule(prefix=f"{EXPORTS}/", expiration=Duration.days(_EXPORT_DAYS))
            ],
            key=self.key,
        )
        CfnOutput(self, "WarehouseBucket", value=bucket.bucket_name)
        return bucket

    def _alarm_topic(self, config: Config) -> sns.ITopic:
        """The topic that the context names, else one that alarms of this account may publish to.

        The own topic is always there, because alarms of other stacks import it until their update.
        """
        display_name = f"{config.name} alarms"
        arn = config.alarm_topic_key
        topic = sns.Topic(
            self,
            "AlarmTopic",
            enforce_ssl=True,
            display_name=display_name,
            master_key=kms.Key.from_key_arn(self, "AlarmTopicKey", arn) if arn else None,
        )
        if config.alarm_email:
            email = sns.SubscriptionProtocol.EMAIL
            sns.Subscription(
                self, "AlarmEmail", topic=topic, endpoint=config.alarm_email, protocol=email
            )
        # with a policy of its own a topic has lost the default one, by which alarms may publish
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sns:Publish"],
                principals=[own_service("cloudwatch.amazonaws.com")],
                resources=[topic.topic_arn],
            )
        )
        self.export_value(topic.topic_arn)
        if config.alarm_topic_arn:
            return sns.Topic.from_topic_arn(self, "GivenAlarmTopic", config.alarm_topic_arn)
        return topic
