"""The synthesised application as AWS would describe it once deployed: a fake that tests break."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from local.cloudformation.assembly import Assembly
from local.cloudformation.identities import FUNCTION, MAPPING, QUEUE, TABLES, Identities
from local.cloudformation.template import Template

if TYPE_CHECKING:
    from pathlib import Path

RULE: Final = "AWS::Events::Rule"
ALARM: Final = "AWS::CloudWatch::Alarm"


def refused(code: str, operation: str, text: str = "") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": text}}, operation)


@dataclass
class Described:
    """The answers to describing calls; tests change them as AWS would.

    Attributes:
        denied: operations that the caller may not call.
        unknown: operations that an emulator does not know.
        values: of metrics, by metric and the value of its dimension.
        calls: operations that were called.
        regions: of which clients were asked for by name.
    """

    template: Template
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    expiry: dict[str, dict[str, Any]] = field(default_factory=dict)
    backups: dict[str, str] = field(default_factory=dict)
    functions: dict[str, dict[str, Any]] = field(default_factory=dict)
    concurrency: dict[str, int | None] = field(default_factory=dict)
    mappings: dict[str, dict[str, Any]] = field(default_factory=dict)
    queues: dict[str, dict[str, str]] = field(default_factory=dict)
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    alarms: dict[str, dict[str, Any]] = field(default_factory=dict)
    stacks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    values: dict[tuple[str, str], float | None] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    regions: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> Described:
        """Return the deployment of a cloud assembly, whole and healthy."""
        identities = Identities(
            services_endpoint="https://sqs.example",
            api_endpoint="https://a",
            feeds_endpoint="wss://a",
        )
        template = Template(assembly=Assembly.load(folder), identities=identities)
        world = cls(template)
        for name, resource in template.of_type(*TABLES).items():
            arn = f"{template.attribute(name, 'Arn')}/stream/2026"
            identities.learn(resource, "StreamArn", arn)
            world._table(template.physical(name), template.properties(name), arn)
        for name in template.of_type(FUNCTION):
            world._function(template.physical(name), template.properties(name))
        for name in template.of_type(MAPPING):
            mapping = template.properties(name)
            function = world.functions[mapping.pop("FunctionName").rpartition(":")[2]]
            world.mappings[template.ref(name)] = mapping | {
                "UUID": template.ref(name),
                "FunctionArn": function["FunctionArn"],
                "State": "Enabled",
                "LastProcessingResult": "No records processed",
            }
        for name in template.of_type(QUEUE):
            world._queue(name)
        for name in template.of_type(RULE):
            rule = template.properties(name)
            world.rules[template.physical(name)] = rule | {"Name": template.physical(name)}
        for name in template.of_type(ALARM):
            world.alarms[template.physical(name)] = template.properties(name) | {
                "AlarmName": template.physical(name),
                "ActionsEnabled": True,
                "StateValue": "OK",
            }
        world._listed()
        world.values["OldestAge", "fairbox"] = 4.0
        for reader in ("relay", "mark_delivered", "cascade_batches"):
            world.values["IteratorAge", world.name(reader)] = 900
        return world

    def _table(self, name: str, given: dict[str, Any], arn: str) -> None:
        view = given.get("StreamSpecification", {}).get("StreamViewType")
        stream = {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": view}}
        self.tables[name] = {
            "TableName": name,
            "TableStatus": "ACTIVE",
            "KeySchema": given["KeySchema"],
            "AttributeDefinitions": given["AttributeDefinitions"],
            "GlobalSecondaryIndexes": [
                index | {"IndexStatus": "ACTIVE"}
                for index in given.get("GlobalSecondaryIndexes", [])
            ],
            "BillingModeSummary": {"BillingMode": given["BillingMode"]},
            "DeletionProtectionEnabled": given.get("DeletionProtectionEnabled", False),
            **(stream | {"LatestStreamArn": arn} if view else {}),
        }
        expiry = given.get("TimeToLiveSpecification", {"Enabled": False})
        status = "ENABLED" if expiry["Enabled"] else "DISABLED"
        named = {"AttributeName": expiry["AttributeName"]} if expiry["Enabled"] else {}
        self.expiry[name] = {"TimeToLiveStatus": status, **named}
        on = given["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]
        self.backups[name] = "ENABLED" if on else "DISABLED"

    def _function(self, name: str, given: dict[str, Any]) -> None:
        arn = f"arn:aws:lambda:us-east-1:123456789012:function:{name}"
        self.functions[name] = {
            "FunctionName": name, "FunctionArn": arn, "State": "Active",
            "LastUpdateStatus": "Successful", "Runtime": given["Runtime"],
            "Timeout": given.get("Timeout", 3), "Environment": given.get("Environment", {}),
        }  # fmt: skip
        self.concurrency[name] = given.get("ReservedConcurrentExecutions")

    def _queue(self, name: str) -> None:
        given = self.template.properties(name)
        text = {
            key: json.dumps(value) if isinstance(value, dict) else str(value).lower()
            for key, value in given.items()
            if key in ("VisibilityTimeout", "FifoQueue", "RedrivePolicy")
        }
        self.queues[self.template.ref(name)] = text | {
            "QueueArn": self.template.attribute(name, "Arn"),
            "ApproximateNumberOfMessages": "0",
        }

    def _listed(self) -> None:
        for name, resource in self.template.resources.items():
            self.stacks.setdefault(resource.stack, []).append(
                {
                    "LogicalResourceId": resource.logical_id,
                    "ResourceType": resource.type,
                    "PhysicalResourceId": self.template.ref(name),
                    "ResourceStatus": "CREATE_COMPLETE",
                }
            )
        for name, value in self.template.outputs().items():
            stack, _, key = name.partition(".")
            self.outputs.setdefault(stack, {})[key] = value

    def name(self, role: str) -> str:
        """Return what Lambda calls the function of a role."""
        (name,) = (
            n
            for n, f in self.functions.items()
            if f["Environment"].get("Variables", {}).get("POWERTOOLS_SERVICE_NAME")
            == f"fairbox-{role}"
        )
        return name

    def mappings_of(self, role: str) -> list[dict[str, Any]]:
        """Return a function's mappings."""
        arn = self.functions[self.name(role)]["FunctionArn"]
        return [mapping for mapping in self.mappings.values() if mapping["FunctionArn"] == arn]

    def rule_of(self, role: str) -> dict[str, Any]:
        """Return the rule that starts a function."""
        arn = self.functions[self.name(role)]["FunctionArn"]
        (rule,) = (r for r in self.rules.values() if arn in [t["Arn"] for t in r["Targets"]])
        return rule

    def environment(self) -> dict[str, str]:
        """Return what a shell of this deployment has."""
        return {
            name: value
            for function in self.functions.values()
            for name, value in function["Environment"].get("Variables", {}).items()
            if name.startswith("FAIRBOX_")
        }

    def client(self, service: str, region: str | None = None) -> Any:
        """Return a client of any service."""
        if region is not None:
            self.regions.append((service, region))
        return _Client(self)


class _Client:
    """Answers the describing calls of every service, as boto3's clients do."""

    def __init__(self, world: Described) -> None:
        self._world = world

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        world = self._world
        world.calls.append(name)
        if name in world.denied:
            return _raising(refused("AccessDeniedException", name))
        if name in world.unknown:
            return _raising(refused("UnknownOperationException", name))
        return object.__getattribute__(self, name)

    def describe_table(self, *, TableName: str) -> Any:  # noqa: N803 - the SDK's
        return {"Table": _found(self._world.tables, TableName, "ResourceNotFoundException")}

    def describe_time_to_live(self, *, TableName: str) -> Any:  # noqa: N803 - the SDK's
        told = _found(self._world.expiry, TableName, "ResourceNotFoundException")
        return {"TimeToLiveDescription": told}

    def describe_continuous_backups(self, *, TableName: str) -> Any:  # noqa: N803 - the SDK's
        status = {"PointInTimeRecoveryStatus": self._world.backups[TableName]}
        return {"ContinuousBackupsDescription": {"PointInTimeRecoveryDescription": status}}

    def list_stack_resources(self, *, StackName: str, NextToken: str = "0") -> Any:  # noqa: N803 - the SDK's
        if StackName not in self._world.stacks:
            raise refused("ValidationError", "x", f"Stack with id {StackName} does not exist")
        start = int(NextToken)
        resources = self._world.stacks[StackName]
        more = {"NextToken": str(start + 20)} if start + 20 < len(resources) else {}
        return {"StackResourceSummaries": resources[start : start + 20], **more}

    def describe_stacks(self, *, StackName: str) -> Any:  # noqa: N803 - the SDK's
        outputs = self._world.outputs[StackName].items()
        listed = [{"OutputKey": key, "OutputValue": value} for key, value in outputs]
        return {"Stacks": [{"StackName": StackName, "Outputs": listed}]}

    def get_function_configuration(self, *, FunctionName: str) -> Any:  # noqa: N803 - the SDK's
        name = FunctionName.rpartition(":")[2]
        return _found(self._world.functions, name, "ResourceNotFoundException")

    def get_function_concurrency(self, *, FunctionName: str) -> Any:  # noqa: N803 - the SDK's
        value = self._world.concurrency[FunctionName]
        return {} if value is None else {"ReservedConcurrentExecutions": value}

    def get_event_source_mapping(self, *, UUID: str) -> Any:  # noqa: N803 - the SDK's
        return _found(self._world.mappings, UUID, "ResourceNotFoundException")

    def get_queue_attributes(self, *, QueueUrl: str, AttributeNames: list[str]) -> Any:  # noqa: N803 - the SDK's
        assert AttributeNames
        attributes = _found(self._world.queues, QueueUrl, "AWS.SimpleQueueService.NonExistentQueue")
        return {"Attributes": attributes}

    def get_queue_url(self, *, QueueName: str) -> Any:  # noqa: N803 - the SDK's
        urls = {url.rpartition("/")[2]: url for url in self._world.queues}
        return {"QueueUrl": _found(urls, QueueName, "AWS.SimpleQueueService.NonExistentQueue")}

    def describe_rule(self, *, Name: str) -> Any:  # noqa: N803 - the SDK's
        return _found(self._world.rules, Name, "ResourceNotFoundException")

    def list_targets_by_rule(self, *, Rule: str) -> Any:  # noqa: N803 - the SDK's
        return {"Targets": self._world.rules[Rule]["Targets"]}

    def describe_alarms(self, *, AlarmNames: list[str], MaxRecords: int) -> Any:  # noqa: N803 - the SDK's
        assert len(AlarmNames) <= MaxRecords == 100
        found = [self._world.alarms[n] for n in AlarmNames if n in self._world.alarms]
        return {"MetricAlarms": found}

    def get_metric_data(self, *, MetricDataQueries: list[Any], StartTime: Any, EndTime: Any) -> Any:  # noqa: N803 - the SDK's
        assert StartTime < EndTime
        results = []
        for query in MetricDataQueries:
            metric = query["MetricStat"]["Metric"]
            value = self._world.values.get((metric["MetricName"], metric["Dimensions"][0]["Value"]))
            results.append({"Id": query["Id"], "Values": [] if value is None else [value]})
        return {"MetricDataResults": results}

    def get_topic_attributes(self, *, TopicArn: str) -> Any:  # noqa: N803 - the SDK's
        return self._other(TopicArn, "NotFound")

    def describe_event_bus(self, *, Name: str) -> Any:  # noqa: N803 - the SDK's
        return self._other(Name, "ResourceNotFoundException")

    def describe_stream_summary(self, *, StreamARN: str) -> Any:  # noqa: N803 - the SDK's
        return self._other(StreamARN, "ResourceNotFoundException")

    def _other(self, name: str, code: str) -> Any:
        if name not in self._world.others:
            raise refused(code, "x")
        return {}


def _found(there: dict[str, Any], name: str, code: str) -> Any:
    if name not in there:
        raise refused(code, "x")
    return there[name]


def _raising(error: ClientError) -> Any:
    def call(**_: Any) -> Any:
        raise error

    return call
