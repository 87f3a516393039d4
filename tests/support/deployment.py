"""The functions as the synthesised template has them, for tests that run their handlers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from fairbox.testing.application import BATCHES, DELIVERIES, FEEDS, OUTBOX, MemoryApplication

from local.cloudformation.assembly import Assembly
from local.cloudformation.identities import QUEUE, REGION, Identities
from local.cloudformation.synthesis import synthesise
from local.cloudformation.template import Template
from local.functions.specs import function_specs
from local.workspace import Workspace
from tests.support.iam.recording import Caller, Recorded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.functions.specs import FunctionSpec
    from tests.support.iam.recording import Log

SETTINGS = {"profile": "local", "canary": "true"}
"""Every setting that adds a function."""


@cache
def template() -> Template:
    """Return the template, its references resolved."""
    return Template(
        assembly=Assembly.load(synthesise(Workspace(), context=SETTINGS, name="cdk.functions")),
        identities=Identities(
            services_endpoint=f"https://sqs.{REGION}.amazonaws.com",
            api_endpoint=f"https://api.execute-api.{REGION}.amazonaws.com",
            feeds_endpoint=f"wss://feeds.execute-api.{REGION}.amazonaws.com",
        ),
    )


@cache
def function_specifications() -> Mapping[str, FunctionSpec]:
    """Return each function of the template, by the name of its folder."""
    specs = function_specs(template(), variables={}).values()
    return {s.environment["POWERTOOLS_SERVICE_NAME"].removeprefix("fairbox-"): s for s in specs}


def environment(function: str) -> dict[str, str]:
    """Return the variables that the template gives a function, and no other."""
    return dict(function_specifications()[function].environment)


def queue_with(url: str) -> Mapping[str, Any]:
    """Return the properties of the queue with this URL."""
    [name] = [name for name in template().of_type(QUEUE) if template().ref(name) == url]
    return template().properties(name)


def variable(name: str) -> str:
    """Return the value that every function with this variable has."""
    values = {s.environment.get(name) for s in function_specifications().values()} - {None}
    assert len(values) == 1, f"{name} has {len(values)} values in the template"
    return str(values.pop())


class RecordedApplication(MemoryApplication):
    """Fairbox in memory; its calls count as those of whoever `caller` names."""

    def __init__(self, log: Log | None = None) -> None:
        tables = (OUTBOX, DELIVERIES, BATCHES, FEEDS)  # each named as its variable is
        renames = {name: variable(f"FAIRBOX_{name.upper()}_TABLE") for name in tables}
        self.caller = Caller(log, renames)
        super().__init__(wrap=lambda client: Recorded(client, "dynamodb", self.caller))
