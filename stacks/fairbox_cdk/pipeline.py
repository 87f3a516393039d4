"""Stack of the data pipeline: the Spark application, the daily run of its jobs, its alarms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import CfnOutput, Duration, TimeZone
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_scheduler_targets as scheduler_targets

from fairbox_cdk.components import permissions as may
from fairbox_cdk.components.alarms import alarm_above, alarm_on_silence
from fairbox_cdk.components.daily_run import DailyRun, Snapshot
from fairbox_cdk.components.spark import SparkApplication
from fairbox_cdk.components.stack import DeploymentStack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_s3 as s3
    from aws_cdk import aws_sns as sns
    from constructs import Construct

    from fairbox_cdk.config import Config
    from fairbox_cdk.packages import PipelinePackage
    from fairbox_cdk.storage import StorageStack

_ALARMS: Final = {
    "Failed": "failed",
    "TimedOut": "took too long",
    "Aborted": "was aborted",
}


class PipelineStack(DeploymentStack):
    """The pipeline that reads the archive.

    Attributes:
        spark: the application that runs the jobs.
        run: the state machine of the daily run.
        job_role: role of the daily jobs.
        replay_role: the same, with writes to outbox and archive; for operators who start `replay`,
            or erase a partition key.
    """

    def __init__(
        self,
        scope: Construct,
        part: str,
        *,
        config: Config,
        storage: StorageStack,
        warehouse: s3.IBucket,
        alarm_topic: sns.ITopic,
        package: PipelinePackage,
        batches: dynamodb.ITable | None = None,
    ) -> None:
        super().__init__(scope, part, description="Fairbox: Spark jobs over the archive.")
        archive = storage.archive.bucket
        self.spark = SparkApplication(self, "Spark", config=config, package=package)
        self.job_role = self.spark.role("JobRole", archive=archive, warehouse=warehouse, more=[])
        self.replay_role = self.spark.role(
            "ReplayRole", archive=archive, warehouse=warehouse, more=_of_operators(storage)
        )
        snapshots: Mapping[str, dynamodb.ITable] = {"outbox": storage.outbox}
        if batches is not None:
            snapshots = {**snapshots, "batches": batches}
        self.run = DailyRun(
            self,
            "DailyRun",
            config=config,
            spark=self.spark,
            job_role=self.job_role,
            archive=archive,
            warehouse=warehouse,
            snapshots=[Snapshot(name, table) for name, table in snapshots.items()],
        )
        self._schedule(config)
        self._alarm(alarm_topic)
        for name, value in (
            ("ApplicationId", self.spark.application.attr_application_id),
            ("ReplayRoleArn", self.replay_role.role_arn),
        ):
            CfnOutput(self, name, value=value)

    def _schedule(self, config: Config) -> None:
        """Schedule the run once a day; a run that is started twice starts no job twice."""
        scheduler.Schedule(
            self,
            "Daily",
            schedule=scheduler.ScheduleExpression.cron(
                minute="0", hour=str(config.pipeline_hour), time_zone=TimeZone.ETC_UTC
            ),
            target=scheduler_targets.StepFunctionsStartExecution(
                self.run.state_machine,
                input=scheduler.ScheduleTargetInput.from_object(
                    {"window": scheduler.ContextAttribute.scheduled_time}
                ),
                retry_attempts=3,
                max_event_age=Duration.hours(1),
            ),
            description="Fairbox: the daily run of the pipeline.",
        )

    def _alarm(self, topic: sns.ITopic) -> None:
        for what, words in _ALARMS.items():
            alarm_above(
                self,
                f"Run{what}",
                metric=self.run.state_machine.metric(
                    f"Executions{what}", period=Duration.minutes(5), statistic="Sum"
                ),
                threshold=0,
                description=f"The daily run of the pipeline {words}.",
                section="Daily run of the pipeline",
                topic=topic,
            )
        alarm_on_silence(
            self,
            "RunSilence",
            metric=self.run.state_machine.metric(
                "ExecutionsStarted", period=Duration.hours(1), statistic="Sum"
            ),
            periods=25,
            description="The daily run of the pipeline has not begun for 25 hours.",
            topic=topic,
        )


def _of_operators(storage: StorageStack) -> list[may.Permission]:
    """Return the permissions of operators' jobs.

    `replay`: topics, messages with their cursor, offloaded bodies. `maintain --erase-key`: the
    archive's files.
    """
    return [
        may.on_objects(
            storage.archive.bucket, "PutObject", "AbortMultipartUpload", below="archive"
        ),
        may.on_table(storage.outbox, *may.READ_ITEMS, "PutItem", "UpdateItem"),
        may.on_objects(storage.bodies, "GetObject", "PutObject"),
        may.list_bucket(storage.bodies),
    ]
