"""The daily run: snapshots of the tables, then all jobs in one run of the application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairbox_cdk.components import permissions as may
from fairbox_cdk.components.deployment import deployment_name
from fairbox_cdk.components.log_groups import vended_log_group
from fairbox_cdk.components.nag import acknowledge

if TYPE_CHECKING:
    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_s3 as s3

    from fairbox_cdk.components.spark import SparkApplication
    from fairbox_cdk.config import Config

EXPORTS: Final = "exports"
"""Prefix of the warehouse bucket below which snapshots lie for a week."""
TABLES: Final = "tables"
"""Prefix of the warehouse bucket below which the Iceberg tables lie."""
JOB_SECONDS: Final = 6 * 3600
MAINTAIN_DAYS: Final = 7
"""Days between two runs that maintain the tables as well."""
RETRIES: Final = 2
"""Of each step; three tries of the jobs fit into the time limit of the run."""
_SETTLING_SECONDS: Final = 600
"""Time that a slow stream reader and Firehose's own retries may add to its buffering."""
_POLL_SECONDS: Final = 60
_MOMENT: Final = "$.outbox.time"
_RULE: Final = "StepFunctionsGetEventsForEMRServerlessJobRule"
"""The managed rule that notifies Step Functions of the end of a job."""


@dataclass(frozen=True)
class Snapshot:
    """A table that is exported before the jobs run."""

    name: str
    table: dynamodb.ITable

    @property
    def id(self) -> str:
        """The beginning of its states' names."""
        return self.name.capitalize()


class DailyRun(Construct):
    """A state machine, started with `{"window": "<time>"}`.

    The client token of the jobs is made of the window, the code, the snapshots and the number of
    the try: the same run started twice starts them once, and a try after a failure another time.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        config: Config,
        spark: SparkApplication,
        job_role: iam.Role,
        archive: s3.IBucket,
        warehouse: s3.IBucket,
        snapshots: list[Snapshot],
    ) -> None:
        super().__init__(scope, id_)
        self._spark = spark
        self._job_role = job_role
        self._warehouse = warehouse
        self._retained_days = config.archive_retention_days  # the tables know no more than it
        self._archive_uri = f"s3://{archive.bucket_name}/archive"
        self.warehouse_uri = f"s3://{warehouse.bucket_name}/{TABLES}"
        self._has_trackers = any(one.name == "batches" for one in snapshots)
        self._log_group = vended_log_group(self, "Logs", config=config, service="states")
        self.role = iam.Role(self, "Role", assumed_by=may.own_service("states.amazonaws.com"))
        settling = config.archive_buffer_seconds + config.mark_delivered_window_seconds
        self.state_machine = sfn.StateMachine(
            self,
            "Machine",
            role=self.role,
            definition_body=sfn.DefinitionBody.from_chainable(
                self._definition(snapshots, settling + _SETTLING_SECONDS)
            ),
            timeout=Duration.hours(24),
            tracing_enabled=config.tracing,
            logs=sfn.LogOptions(
                destination=self._log_group,
                level=sfn.LogLevel.ALL,
                include_execution_data=True,
            ),
        )
        self._allow(snapshots)

    def _definition(self, snapshots: list[Snapshot], settling: int) -> sfn.IChainable:
        """Export at one moment; let the archive catch up with it; then the jobs."""
        chain: sfn.Chain | None = None
        for snapshot in snapshots:
            export = self._export(snapshot)
            chain = sfn.Chain.start(export) if chain is None else chain.next(export)
        if chain is None:
            raise ValueError("reconcile needs a snapshot of the outbox")
        wait = sfn.Wait(
            self,
            "ArchiveCatchesUp",
            time=sfn.WaitTime.duration(Duration.seconds(settling)),
            comment="What was delivered before the snapshot is in the archive after this.",
        )
        chain = chain.next(wait)
        for snapshot in snapshots:
            look, exported = self._until_exported(snapshot)
            chain.next(look)
            chain = sfn.Chain.custom(chain.start_state, [exported], exported)
        return chain.next(self._jobs())

    def _export(self, snapshot: Snapshot) -> sfn.CustomState:
        prefix = f"{EXPORTS}/{snapshot.name}"
        uri = f"s3://{self._warehouse.bucket_name}/{prefix}/AWSDynamoDB/"
        arn = "$.ExportDescription.ExportArn"
        of = deployment_name(self)  # another's run of this hour would be taken for this one
        return sfn.CustomState(
            self,
            f"Export{snapshot.id}",
            state_json={
                "Type": "Task",
                "Resource": _resource(self, "aws-sdk:dynamodb:exportTableToPointInTime"),
                "Parameters": {
                    "TableArn": snapshot.table.table_arn,
                    "S3Bucket": self._warehouse.bucket_name,
                    "S3Prefix": prefix,
                    "ExportFormat": "DYNAMODB_JSON",
                    "ClientToken.$": _token(f"{of} export {snapshot.name}", []),
                },
                "ResultSelector": {
                    "arn.$": arn,
                    "time.$": "$.ExportDescription.ExportTime",
                    "uri.$": (
                        f"States.Format('{uri}{{}}', "
                        f"States.ArrayGetItem(States.StringSplit({arn}, '/'), 3))"
                    ),
                },
                "ResultPath": f"$.{snapshot.name}",
                "Retry": _retry(),
            },
        )

    def _until_exported(self, snapshot: Snapshot) -> tuple[sfn.CustomState, sfn.Pass]:
        """Poll each minute; return the first state and the one after the last poll."""
        name = f"{snapshot.id}Export"
        look = sfn.CustomState(
            self,
            f"LookAt{name}",
            state_json={
                "Type": "Task",
                "Resource": _resource(self, "aws-sdk:dynamodb:describeExport"),
                "Parameters": {"ExportArn.$": f"$.{snapshot.name}.arn"},
                "ResultSelector": {"status.$": "$.ExportDescription.ExportStatus"},
                "ResultPath": "$.export",
                "Retry": _retry(),
            },
        )
        again = sfn.Wait(
            self,
            f"WaitFor{name}",
            time=sfn.WaitTime.duration(Duration.seconds(_POLL_SECONDS)),
        )
        failed = sfn.Fail(self, f"{name}Failed", cause=f"The export of {snapshot.name} failed.")
        done = sfn.Pass(self, f"{name}Done")
        status = sfn.Choice(self, f"Is{name}Done")
        status.when(sfn.Condition.string_equals("$.export.status", "COMPLETED"), done)
        status.when(sfn.Condition.string_equals("$.export.status", "FAILED"), failed)
        status.otherwise(again.next(look))
        look.next(status)
        return look, done

    def _jobs(self) -> sfn.CustomState:
        # what happened after the snapshot is the next run's: the snapshot does not know of it
        given = [
            *("daily", "--archive", self._archive_uri, "--warehouse", self.warehouse_uri, "--json"),
            *("--maintain-every", str(MAINTAIN_DAYS), "--retain", str(self._retained_days)),
            *("--until", _MOMENT, "--outstanding", "$.outbox.uri"),
            *(("--trackers", "$.batches.uri") if self._has_trackers else ()),
        ]
        paths = [text for text in given if text.startswith("$.")]
        of = deployment_name(self)
        listed = ", ".join(text if text in paths else f"'{text}'" for text in given)
        return sfn.CustomState(
            self,
            "Jobs",
            state_json={
                "Type": "Task",
                "Resource": _resource(self, "emr-serverless:startJobRun.sync"),
                "Parameters": {
                    "ApplicationId": self._spark.application.attr_application_id,
                    "ExecutionRoleArn": self._job_role.role_arn,
                    "Name": "fairbox-daily",
                    "ClientToken.$": _token(f"{of} daily {self._spark.fingerprint}", paths),
                    "ExecutionTimeoutMinutes": JOB_SECONDS // 60,
                    "JobDriver": {
                        "SparkSubmit": {
                            "EntryPoint": self._spark.entry.s3_object_url,
                            "EntryPointArguments.$": f"States.Array({listed})",
                            "SparkSubmitParameters": self._spark.submit_parameters(
                                self.warehouse_uri
                            ),
                        }
                    },
                },
                "ResultPath": None,
                "TimeoutSeconds": JOB_SECONDS + 900,
                "Retry": _retry(),
            },
        )

    def _allow(self, snapshots: list[Snapshot]) -> None:
        """Start and follow jobs in the job role's name; export the tables; log."""
        application = self._spark.arn
        stack = Stack.of(self)
        rule = stack.format_arn(service="events", resource="rule", resource_name=_RULE)
        statements = [
            iam.PolicyStatement(actions=["emr-serverless:StartJobRun"], resources=[application]),
            iam.PolicyStatement(
                actions=["emr-serverless:GetJobRun", "emr-serverless:CancelJobRun"],
                resources=[f"{application}/jobruns/*"],
            ),
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[self._job_role.role_arn],
                conditions={
                    "StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}
                },
            ),
            iam.PolicyStatement(
                actions=["events:PutTargets", "events:PutRule", "events:DescribeRule"],
                resources=[rule],
            ),
        ]
        for statement in statements:
            self.role.add_to_policy(statement)
        for snapshot in snapshots:
            self._allow_export(snapshot)
        self._acknowledge()

    def _allow_export(self, snapshot: Snapshot) -> None:
        arn = snapshot.table.table_arn
        self.role.add_to_policy(
            iam.PolicyStatement(actions=["dynamodb:ExportTableToPointInTime"], resources=[arn])
        )
        for permission in (
            may.on_exports(snapshot.table),
            may.on_objects(
                self._warehouse,
                *("PutObject", "PutObjectAcl", "AbortMultipartUpload"),
                below=f"{EXPORTS}/{snapshot.name}",
            ),
        ):
            self.role.add_to_policy(permission.statement)
            for finding, reason in permission.accepted:
                acknowledge(self.role, finding, reason)

    def _acknowledge(self) -> None:
        application = Stack.of(self).get_logical_id(self._spark.application)
        acknowledge(
            self.role,
            f"AwsSolutions-IAM5[Resource::<{application}.Arn>/jobruns/*]",
            "Runs have ids that EMR makes when they start.",
        )
        acknowledge(
            self.role,
            "AwsSolutions-IAM5[Resource::*]",
            "X-Ray and the delivery of logs know no resource; nothing else is granted on *.",
        )
        acknowledge(
            self.state_machine,
            "AwsSolutions-SF2",
            "Tracing is a setting; a run has its history, and a log of all its steps.",
        )


def _resource(scope: Construct, rest: str) -> str:
    return f"arn:{Stack.of(scope).partition}:states:::{rest}"


def _token(what: str, paths: list[str]) -> str:
    """Return 64 hex digits: equal for the same work, different for a try after a failure."""
    parts = [*paths, "$.window", "$$.State.RetryCount", "$$.Execution.RedriveCount"]
    marks = " ".join("{}" for _ in parts)
    return f"States.Hash(States.Format('{what} {marks}', {', '.join(parts)}), 'SHA-256')"


def _retry() -> list[dict[str, Any]]:
    return [
        {
            "ErrorEquals": ["States.ALL"],
            "IntervalSeconds": _POLL_SECONDS,
            "BackoffRate": 2,
            "MaxAttempts": RETRIES,
            "JitterStrategy": "FULL",
        }
    ]
