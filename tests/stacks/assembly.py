"""Reads a synthesised cloud assembly the way the tests ask about it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Resource = dict[str, Any]
_IMPORTED = re.compile(
    r"\w+:ExportsOutput(?:FnGetAtt|Ref)(\w+?)[0-9A-F]{8}(Arn|StreamArn|QueueName|ApiEndpoint)?[0-9A-F]{8}"
)
_SUFFIX = re.compile(r"[0-9A-F]{8}$")


@dataclass(frozen=True)
class Assembly:
    """The templates of every stack, as one set of resources."""

    folder: Path

    @cached_property
    def templates(self) -> dict[str, dict[str, Any]]:
        return {
            name: json.loads((self.folder / artifact["properties"]["templateFile"]).read_text())
            for name, artifact in sorted(self.artifacts.items())
        }

    @cached_property
    def artifacts(self) -> dict[str, dict[str, Any]]:
        """The manifest's entries of the stacks, by their names."""
        manifest = json.loads((self.folder / "manifest.json").read_text())
        return {
            artifact["properties"].get("stackName", id_): {"id": id_} | artifact
            for id_, artifact in manifest["artifacts"].items()
            if artifact["type"] == "aws:cloudformation:stack"
        }

    @cached_property
    def resources(self) -> dict[str, Resource]:
        """By `<stack>/<logical id without its hash>`."""
        return {
            f"{stack}/{_SUFFIX.sub('', id_)}": resource
            for stack, template in self.templates.items()
            for id_, resource in template["Resources"].items()
        }

    def of_type(self, kind: str) -> dict[str, Resource]:
        """Properties by name of every resource of a type."""
        found = {
            name: resource.get("Properties", {})
            for name, resource in self.resources.items()
            if resource["Type"] == kind
        }
        assert found, f"no {kind} in {self.folder}"
        return found

    def functions(self) -> dict[str, Resource]:
        """Properties of every function, by the name of its folder."""
        return {
            variables(properties)["POWERTOOLS_SERVICE_NAME"].removeprefix("fairbox-"): properties
            for properties in self.of_type("AWS::Lambda::Function").values()
            if properties["Runtime"].startswith("python")  # the CDK's own handlers are not
        }

    def statements(self, role: str) -> list[Resource]:
        """Every policy statement of a role, by the role's name."""
        return [
            statement
            for properties in self.of_type("AWS::IAM::Policy").values()
            if any(plain(one) == role for one in properties["Roles"])
            for statement in properties["PolicyDocument"]["Statement"]
        ]

    def permissions(self, role: str) -> dict[str, set[str]]:
        """The permissions of a role: actions by plain name of the resource."""
        allowed: dict[str, set[str]] = {}
        for statement in self.statements(role):
            assert statement["Effect"] == "Allow"
            for resource in listed(statement["Resource"]):
                allowed.setdefault(plain(resource), set()).update(listed(statement["Action"]))
        return allowed


def variables(function: Resource) -> dict[str, Any]:
    """The environment of a function."""
    found: dict[str, Any] = function["Environment"]["Variables"]
    return found


def listed(value: Any) -> list[Any]:
    """A list, where CloudFormation takes one value for a list of it."""
    return value if isinstance(value, list) else [value]


def plain(value: Any) -> str:
    """A reference as text: `Outbox`, `Outbox/index/X`, `Outbox.StreamArn`, or the text itself."""
    match value:
        case str():
            return value
        case {"Ref": id_}:
            return _SUFFIX.sub("", id_)
        case {"Fn::GetAtt": [id_, attribute]}:
            return _SUFFIX.sub("", id_) + _kind(attribute)
        case {"Fn::ImportValue": name}:
            found = _IMPORTED.fullmatch(name)
            assert found is not None, name
            return found[1] + _kind(found[2])
        case {"Fn::Sub": str(text)}:
            return text
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(plain(part) for part in parts)
    raise AssertionError(f"no plain name for {value}")


def _kind(attribute: str | None) -> str:
    return "" if attribute in {None, "Arn"} else f".{attribute}"
