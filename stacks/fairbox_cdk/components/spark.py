"""The Spark application: EMR Serverless that costs nothing while no job runs, and its roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Aws, Stack
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from fairbox_cdk.components import permissions as may
from fairbox_cdk.components.log_groups import log_group
from fairbox_cdk.components.nag import acknowledge
from fairbox_cdk.components.retention import removal_policy
from fairbox_cdk.packages import SPARK_PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aws_cdk import aws_s3 as s3

    from fairbox_cdk.components.permissions import Permission
    from fairbox_cdk.config import Config
    from fairbox_cdk.packages import PipelinePackage

RELEASE: Final = "emr-spark-8.1.0"
"""Spark 4.1.1 and Iceberg 1.11.0, as the pipeline's lock has them."""
CATALOG: Final = "glue"
"""The default catalog of a run; without one, the session takes a folder."""
ICEBERG_JAR: Final = "/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar"
"""Its path in EMR releases."""
WORKER_VCPU: Final = 2
WORKER_HEAP_GB: Final = 5
WORKER_OVERHEAD: Final = 0.6
"""By the heap: 3 GB for the Python processes. Driver and executors are of one size, 8 GB."""
_IDLE_MINUTES: Final = 2
_GB_A_VCPU: Final = 8
_DISK_GB_A_VCPU: Final = 20
"""That of a worker of one vCPU; the first 20 GB of each worker are free."""
_DEFAULT_DATABASE: Final = "default"
_TABLE_ACTIONS: Final = ("GetTable", "GetTables", "CreateTable", "UpdateTable")
"""Those of Iceberg's catalog; the jobs never drop a table."""


class SparkApplication(Construct):
    """The Spark application that runs the jobs.

    Attributes:
        application: starts with a job, stops after it; nothing is kept warm.
        entry, code, environment: the parts of a job's package, in S3.
    """

    def __init__(
        self, scope: Construct, id_: str, *, config: Config, package: PipelinePackage
    ) -> None:
        super().__init__(scope, id_)
        self._executors = config.pipeline_vcpu // WORKER_VCPU - 1
        self._database = config.glue_database
        self._log_group = log_group(self, "Logs", config=config)
        self.entry = s3_assets.Asset(self, "Entry", path=str(package.entry))
        self.code = s3_assets.Asset(self, "Code", path=str(package.code))
        self.environment = s3_assets.Asset(self, "Environment", path=str(package.environment))
        self.application = self._application(config)
        self.database = glue.CfnDatabase(
            self,
            "Database",
            catalog_id=Aws.ACCOUNT_ID,
            database_input=glue.CfnDatabase.DatabaseInputProperty(
                name=self._database, description="Fairbox: what happened to every message."
            ),
        )
        # it names the tables, whose files stay in the warehouse
        self.database.apply_removal_policy(removal_policy(config))

    def _application(self, config: Config) -> emr.CfnApplication:
        of = emr.CfnApplication
        return emr.CfnApplication(
            self,
            "Application",
            type="SPARK",
            release_label=RELEASE,
            architecture="ARM64",
            auto_start_configuration=of.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=of.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=_IDLE_MINUTES
            ),
            maximum_capacity=of.MaximumAllowedResourcesProperty(
                cpu=f"{config.pipeline_vcpu} vCPU",
                memory=f"{config.pipeline_vcpu * _GB_A_VCPU} GB",
                disk=f"{config.pipeline_vcpu * _DISK_GB_A_VCPU} GB",
            ),
            monitoring_configuration=of.MonitoringConfigurationProperty(
                cloud_watch_logging_configuration=of.CloudWatchLoggingConfigurationProperty(
                    enabled=True, log_group_name=self._log_group.log_group_name
                )
            ),
        )

    @property
    def arn(self) -> str:
        """The application's ARN."""
        return self.application.attr_arn

    @property
    def fingerprint(self) -> str:
        """Digest that changes with the code and its dependencies."""
        return "-".join(a.asset_hash[:16] for a in (self.entry, self.code, self.environment))

    def submit_parameters(self, warehouse: str) -> str:
        """Return the `spark-submit` parameters of every job."""
        catalog = f"spark.sql.catalog.{CATALOG}"
        python = f"python{SPARK_PYTHON}"
        settings = {
            "spark.submit.pyFiles": self.code.s3_object_url,
            "spark.archives": f"{self.environment.s3_object_url}#environment",
            "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": python,
            "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": python,
            "spark.emr-serverless.driverEnv.PYTHONPATH": "./environment",
            "spark.executorEnv.PYSPARK_PYTHON": python,
            "spark.executorEnv.PYTHONPATH": "./environment",
            "spark.driver.cores": str(WORKER_VCPU),
            "spark.driver.memory": f"{WORKER_HEAP_GB}g",
            "spark.executor.cores": str(WORKER_VCPU),
            "spark.executor.memory": f"{WORKER_HEAP_GB}g",
            "spark.emr-serverless.memoryOverheadFactor": str(WORKER_OVERHEAD),
            # Spark begins with the greater of both; EMR's default is three
            "spark.executor.instances": "1",
            "spark.dynamicAllocation.initialExecutors": "1",
            "spark.dynamicAllocation.maxExecutors": str(self._executors),
            # Hive's catalog would create database `default` in an account that has none
            "spark.sql.catalogImplementation": "in-memory",
            "spark.jars": ICEBERG_JAR,
            "spark.sql.extensions": (
                "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
            ),
            "spark.sql.defaultCatalog": CATALOG,
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
            f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            f"{catalog}.warehouse": warehouse,
            "spark.fairbox.namespace": self._database,
        }
        return " ".join(f"--conf {key}={value}" for key, value in settings.items())

    def role(
        self, id_: str, *, archive: s3.IBucket, warehouse: s3.IBucket, more: Iterable[Permission]
    ) -> iam.Role:
        """A role for jobs: reads the archive, reads and writes the warehouse, and `more`."""
        role = iam.Role(
            self,
            id_,
            assumed_by=may.own_service("emr-serverless.amazonaws.com"),
        )
        permissions = [
            may.on_objects(archive, "GetObject", below="archive"),
            may.list_bucket(archive),
            may.on_objects(
                warehouse, "GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload"
            ),
            may.list_bucket(warehouse),
            *more,
        ]
        for permission in permissions:
            role.add_to_principal_policy(permission.statement)
            for rule, reason in permission.accepted:
                acknowledge(role, rule, reason)
        self._allow_tables(role)
        self._allow_start(role)
        return role

    def _allow_tables(self, role: iam.Role) -> None:
        stack = Stack.of(self)
        arns = [
            stack.format_arn(service="glue", resource=resource)
            for resource in ("catalog", f"database/{self._database}", f"table/{self._database}/*")
        ]
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["glue:GetDatabase", *(f"glue:{action}" for action in _TABLE_ACTIONS)],
                resources=arns,
            )
        )
        # Spark asks for it when a session starts, whatever the session's own database
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["glue:GetDatabase"],
                resources=[
                    stack.format_arn(service="glue", resource=f"database/{_DEFAULT_DATABASE}")
                ],
            )
        )
        acknowledge(
            role,
            "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:glue:<AWS::Region>:<AWS::AccountId>"
            f":table/{self._database}/*]",
            "The jobs make their tables themselves; the database holds nothing else.",
        )

    def _allow_start(self, role: iam.Role) -> None:
        """The package, and the log."""
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["s3:GetObject"],
                resources=[
                    asset.bucket.arn_for_objects(asset.s3_object_key)
                    for asset in (self.entry, self.code, self.environment)
                ],
            )
        )
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
                resources=[self._log_group.log_group_arn],
            )
        )
        role.add_to_policy(iam.PolicyStatement(actions=["logs:DescribeLogGroups"], resources=["*"]))
        acknowledge(
            role,
            "AwsSolutions-IAM5[Resource::*]",
            "EMR Serverless looks its log group up by listing; the action knows no resource.",
        )
