"""The CloudFormation templates of all stacks, with their intrinsic functions resolved.

Only the intrinsic functions that the templates use are known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from local.cloudformation.assembly import Resource
from local.cloudformation.identities import ACCOUNT, REGION, Identities
from local.workspace import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.cloudformation.assembly import Assembly, Stack

_PLACEHOLDER = re.compile(r"\$\{(!?)([^}]+)\}")


class TemplateError(LocalError):
    """A template holds a value that cannot be resolved; the message says where."""


@dataclass(kw_only=True)
class Template:
    """All stacks: resources by name, references resolved to physical names.

    A resource's name is its logical id, or `stack.logical id` where two stacks share one.
    `identities` gives `Ref` and `Fn::GetAtt` of each type.
    """

    assembly: Assembly
    identities: Identities
    resources: dict[str, Resource] = field(init=False)
    _stacks: dict[str, Stack] = field(init=False)
    _names: dict[tuple[str, str], str] = field(init=False)

    def __post_init__(self) -> None:
        self._stacks = {stack.name: stack for stack in self.assembly.stacks}
        found = [r for stack in self.assembly.stacks for r in self._resources_of(stack)]
        ids = [resource.logical_id for resource in found]
        self._names = {
            (r.stack, r.logical_id): r.logical_id
            if ids.count(r.logical_id) == 1
            else f"{r.stack}.{r.logical_id}"
            for r in found
        }
        self.resources = {self._names[r.stack, r.logical_id]: r for r in found}

    def _resources_of(self, stack: Stack) -> Iterator[Resource]:
        for logical_id, body in stack.template.get("Resources", {}).items():
            if "Condition" in body:
                raise TemplateError(f"{logical_id} of {stack.name}: Condition is not known here")
            yield Resource(
                stack=stack.name,
                logical_id=logical_id,
                type=body["Type"],
                properties=body.get("Properties", {}),
                metadata=body.get("Metadata", {}),
            )

    def of_type(self, *types: str) -> dict[str, Resource]:
        """Return the resources of these types, by name."""
        return {name: r for name, r in self.resources.items() if r.type in types}

    def properties(self, name: str) -> dict[str, Any]:
        """Return a resource's properties with everything resolved.

        Raises:
            TemplateError: a reference or a function is unknown.
        """
        resource = self.resources[name]
        stack = self._stacks[resource.stack]
        try:
            resolved = self.resolve(resource.properties, stack)
        except TemplateError as exc:
            raise TemplateError(f"{name} ({resource.type}): {exc}") from exc
        return dict(resolved)

    def physical(self, name: str) -> str:
        """Return the physical name of a resource: its own, or one made of stack and logical id."""
        resource = self.resources[name]
        return self.identities.physical(resource, self._given_name(resource))

    def ref(self, name: str) -> str:
        """Return the value of `Ref`."""
        resource = self.resources[name]
        return self.identities.ref(resource, self._given_name(resource))

    def attribute(self, name: str, attribute: str) -> str:
        """Return the value of `Fn::GetAtt`."""
        resource = self.resources[name]
        return self.identities.attribute(resource, attribute, self._given_name(resource))

    def outputs(self) -> dict[str, Any]:
        """Return every stack's outputs, resolved, as `stack.output`."""
        return {
            f"{stack.name}.{key}": self.resolve(output["Value"], stack)
            for stack in self.assembly.stacks
            for key, output in stack.template.get("Outputs", {}).items()
        }

    def _given_name(self, resource: Resource) -> str | None:
        key = self.identities.name_property(resource.type)
        if key not in resource.properties:
            return None
        return str(self.resolve(resource.properties[key], self._stacks[resource.stack]))

    def resolve(self, value: Any, stack: Stack) -> Any:
        """Resolve the intrinsic functions anywhere in a value of a stack's template.

        Raises:
            TemplateError: a reference or a function is unknown.
        """
        if isinstance(value, list):
            return [self.resolve(item, stack) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (key, argument) = next(iter(value.items()))
            if key == "Ref":
                return self._ref(argument, stack)
            if key.startswith("Fn::"):
                return self._function(key, argument, stack)
        return {key: self.resolve(item, stack) for key, item in value.items()}

    def _function(self, key: str, argument: Any, stack: Stack) -> Any:
        functions: dict[str, Callable[[Any, Stack], Any]] = {
            "Fn::GetAtt": self._get_att,
            "Fn::Join": self._join,
            "Fn::Sub": self._sub,
            "Fn::Select": self._select,
            "Fn::Split": self._split,
            "Fn::ImportValue": self._import,
        }
        if key not in functions:
            raise TemplateError(f"{key} is not known here")
        return functions[key](argument, stack)

    def _ref(self, target: str, stack: Stack) -> Any:
        pseudo = {
            "AWS::Region": REGION,
            "AWS::AccountId": ACCOUNT,
            "AWS::Partition": "aws",
            "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{stack.name}/local",
        }
        if target in pseudo:
            return pseudo[target]
        parameter = stack.template.get("Parameters", {}).get(target)
        if parameter is not None:
            if "Default" not in parameter:
                raise TemplateError(f"parameter {target} of {stack.name} has no default")
            return parameter["Default"]
        return self.ref(self._name(target, stack))

    def _name(self, logical_id: str, stack: Stack) -> str:
        try:
            return self._names[stack.name, logical_id]
        except KeyError:
            raise TemplateError(f"{stack.name} has no resource {logical_id}") from None

    def _get_att(self, argument: Any, stack: Stack) -> str:
        target, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
        return self.attribute(self._name(target, stack), attribute)

    def _join(self, argument: Any, stack: Stack) -> str:
        separator, items = argument
        return str(separator).join(str(item) for item in self.resolve(items, stack))

    def _sub(self, argument: Any, stack: Stack) -> str:
        text, variables = argument if isinstance(argument, list) else (argument, {})
        values = self.resolve(variables, stack)

        def replaced(found: re.Match[str]) -> str:
            literal, name = found.groups()
            if literal:
                return f"${{{name}}}"
            if name in values:
                return str(values[name])
            if "." in name:
                return self._get_att(name, stack)
            return str(self._ref(name, stack))

        return _PLACEHOLDER.sub(replaced, text)

    def _select(self, argument: Any, stack: Stack) -> Any:
        index, values = argument
        return self.resolve(values, stack)[int(index)]

    def _split(self, argument: Any, stack: Stack) -> list[str]:
        separator, text = argument
        return str(self.resolve(text, stack)).split(separator)

    def _import(self, argument: Any, stack: Stack) -> Any:
        wanted = self.resolve(argument, stack)
        for other in self.assembly.stacks:
            for output in other.template.get("Outputs", {}).values():
                export = output.get("Export", {}).get("Name")
                if export is not None and self.resolve(export, other) == wanted:
                    return self.resolve(output["Value"], other)
        raise TemplateError(f"no stack exports {wanted}")
