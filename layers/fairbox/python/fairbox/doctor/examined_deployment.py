"""The deployment examined: the tables that the environment names, and the stacks of the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from fairbox.doctor.aws import Aws, Missing, NotAnswered
from fairbox.model.clock import milliseconds
from fairbox.model.deployment import DEFAULT_NAME, stacks_of
from fairbox.settings import BATCHES_TABLE, DELIVERIES_TABLE, FEEDS_TABLE, OUTBOX_TABLE, Settings
from fairbox.tables.feed_rows import FeedRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.client.outbox import Outbox
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.shard_rows import ShardRow

DELIVERY: Final = "Delivery"
"""End of the name of the stack that says the deployed version."""
FUNCTION: Final = "AWS::Lambda::Function"
MAPPING: Final = "AWS::Lambda::EventSourceMapping"
QUEUE: Final = "AWS::SQS::Queue"
RULE: Final = "AWS::Events::Rule"
ALARM: Final = "AWS::CloudWatch::Alarm"
PERIOD: Final = 300
"""Seconds for which CloudWatch is asked for one figure."""
_SERVICE: Final = "POWERTOOLS_SERVICE_NAME"
_PREFIX: Final = "fairbox-"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of a stack: its logical id, its own name, and its status."""

    stack: str
    logical: str
    kind: str
    name: str
    status: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function of Fairbox's.

    Attributes:
        role: the name of its folder, such as `relay`.
        name: what Lambda calls it.
        configuration: as Lambda describes it.
    """

    role: str
    name: str
    configuration: dict[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        """Its variables."""
        return dict(self.configuration.get("Environment", {}).get("Variables", {}))


@dataclass
class Deployment:
    """A deployment, asked about once each.

    Attributes:
        outbox: the tables that the environment names.
        settings: the environment.
        aws: answers questions.
        stacks: names of the stacks; none: those of `name`.
        name: of the deployment, where its metrics are.
        version: of this library.
        placement: whether to scan the outbox for misplaced messages.
        local: it is the application on this machine, which has no stacks, alarms or backups.
    """

    outbox: Outbox
    settings: Settings
    aws: Aws
    version: str
    stacks: tuple[str, ...] = ()
    name: str = DEFAULT_NAME
    placement: bool = False
    local: bool = False
    _tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    _attributes: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take the stacks of the name, unless others were given."""
        self.stacks = self.stacks or stacks_of(self.name, feeds=self.has_feeds)

    @property
    def has_feeds(self) -> bool:
        """Whether the environment names the table of feeds."""
        return self.settings.optional(FEEDS_TABLE) is not None

    @property
    def now(self) -> int:
        """Milliseconds since 1970 UTC."""
        return milliseconds(self.outbox.tables.calls.clock)

    @property
    def table_names(self) -> dict[str, str]:
        """The tables that the environment names, by what they are."""
        names = {
            "outbox": self.settings.optional(OUTBOX_TABLE) or self.outbox.tables.outbox,
            "deliveries": self.settings.optional(DELIVERIES_TABLE) or self.outbox.tables.deliveries,
            "batches": self.settings.optional(BATCHES_TABLE) or self.outbox.tables.batches,
            "feeds": self.settings.optional(FEEDS_TABLE),
        }
        return {role: name for role, name in names.items() if name}

    def table(self, name: str) -> dict[str, Any]:
        """Return a table's description.

        Raises:
            NotAnswered: it cannot be described.
        """
        # several checks look at one table: it is asked about once
        if name not in self._tables:
            answer = self.aws.ask("dynamodb", "describe_table", TableName=name)
            self._tables[name] = answer["Table"]
        return self._tables[name]

    @cached_property
    def _resources(self) -> list[Resource] | NotAnswered:
        found: list[Resource] = []
        for stack in self.stacks:
            try:
                for page in self.aws.pages(
                    "cloudformation", "list_stack_resources", StackName=stack
                ):
                    found += [_resource(stack, one) for one in page["StackResourceSummaries"]]
            except Missing:
                error = NotAnswered(f"there is no stack {stack} here")
                error.advice = "Name the deployment with --name, or its stacks with --stack."
                return error
            except NotAnswered as error:
                # kept as a value: each check that needs the stacks says so by itself
                return error
        return found

    def resources(self, *kinds: str) -> list[Resource]:
        """Return the stacks' resources of some kinds; without a kind: all.

        Raises:
            NotAnswered: the stacks cannot be listed.
        """
        found = self._resources
        if isinstance(found, NotAnswered):
            # one instance raised again would gather tracebacks
            error = NotAnswered(str(found))
            error.advice = found.advice
            raise error
        return [one for one in found if not kinds or one.kind in kinds]

    @cached_property
    def gone(self) -> list[str]:
        """Logical ids of functions that are in the stacks' lists, and not there."""
        return [r.logical for r, c in self._configurations if c is None]

    @cached_property
    def _configurations(self) -> list[tuple[Resource, dict[str, Any] | None]]:
        return self._described(FUNCTION, "get_function_configuration", "FunctionName")

    def _described(
        self, kind: str, operation: str, argument: str
    ) -> list[tuple[Resource, dict[str, Any] | None]]:
        """Return resources of a kind as Lambda describes them; None: it is not there."""
        found: list[tuple[Resource, dict[str, Any] | None]] = []
        for resource in self.resources(kind):
            try:
                answer = self.aws.ask("lambda", operation, **{argument: resource.name})
            except Missing:
                # deleted by hand: CloudFormation still lists it
                found.append((resource, None))
            else:
                found.append((resource, answer))
        return found

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Fairbox's functions by role; those that the CDK adds for itself are left out.

        Raises:
            NotAnswered: they cannot be described.
        """
        found = {}
        for resource, configuration in self._configurations:
            variables = (configuration or {}).get("Environment", {}).get("Variables", {})
            # names of functions are made by CloudFormation: this variable says which each is
            service = str(variables.get(_SERVICE, ""))
            if configuration is not None and service.startswith(_PREFIX):
                role = service.removeprefix(_PREFIX)
                found[role] = Function(role, resource.name, configuration)
        return found

    @cached_property
    def mappings(self) -> list[tuple[str, dict[str, Any] | None]]:
        """Event source mappings by id; None: it was deleted.

        Raises:
            NotAnswered: they cannot be described.
        """
        found = self._described(MAPPING, "get_event_source_mapping", "UUID")
        return [(one.logical if answer is None else one.name, answer) for one, answer in found]

    def role_of(self, arn: str) -> str:
        """Return the role of the function that an ARN names; empty: of none of Fairbox's."""
        # a version or an alias may stand behind the name
        name = arn.rsplit(":function:", maxsplit=1)[-1].split(":", maxsplit=1)[0]
        return next((f.role for f in self.functions.values() if f.name == name), "")

    def queue(self, url: str) -> dict[str, str]:
        """Return a queue's attributes.

        Raises:
            NotAnswered: it cannot be described.
        """
        if url not in self._attributes:
            answer = self.aws.ask(
                "sqs", "get_queue_attributes", QueueUrl=url, AttributeNames=["All"]
            )
            self._attributes[url] = answer["Attributes"]
        return self._attributes[url]

    def figures(self, span: int, *queries: dict[str, Any]) -> dict[str, list[float]]:
        """Return the figures of the last `span` ms by query, the newest first.

        Raises:
            NotAnswered: they cannot be asked for.
        """
        answer = self.aws.ask(
            "cloudwatch",
            "get_metric_data",
            MetricDataQueries=list(queries),
            StartTime=datetime.fromtimestamp((self.now - span) / 1000, UTC),
            # a minute ahead: the period that runs now is asked for too
            EndTime=datetime.fromtimestamp(self.now / 1000 + 60, UTC),
        )
        return {result["Id"]: result["Values"] for result in answer["MetricDataResults"]}

    @cached_property
    def topics(self) -> list[TopicState]:
        """Every topic."""
        return self.outbox.topics()

    @cached_property
    def feeds(self) -> set[str]:
        """Names of the feeds."""
        if not self.has_feeds:
            return set()
        table = self.settings.required(FEEDS_TABLE)
        return {feed.name for feed in FeedRows(self.outbox.tables.calls, table).all()}

    @cached_property
    def rows(self) -> list[ShardRow]:
        """The shards that hold work or dead letters, from the index."""
        return self.outbox.listed()


def figure_of(
    name: str, namespace: str, metric: str, statistic: str, dimensions: Mapping[str, str]
) -> dict[str, Any]:
    """Return the question for a metric's figures by periods of `PERIOD` seconds."""
    named = [{"Name": key, "Value": value} for key, value in dimensions.items()]
    stat = {
        "Metric": {"Namespace": namespace, "MetricName": metric, "Dimensions": named},
        "Period": PERIOD,
        "Stat": statistic,
    }
    return {"Id": name, "MetricStat": stat, "ReturnData": True}


def _resource(stack: str, summary: dict[str, Any]) -> Resource:
    return Resource(
        stack,
        summary["LogicalResourceId"],
        summary["ResourceType"],
        summary.get("PhysicalResourceId", ""),
        summary["ResourceStatus"],
    )
