"""Values of a template with their references resolved to symbols.

The symbol of a resource's attribute contains the resource's generation: `<Stack/Id#1.Arn>`. A
resource that is replaced gets the next generation, so everything that depends on it changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

REF: Final = "Ref"
_PLACEHOLDER: Final = re.compile(r"\$\{(!?)([^}]+)\}")
SYMBOL: Final = re.compile(r"<([^<>/#]+)/([^<>/#]+)#(\d+)\.([^<>]+)>")
"""Stack, logical id, generation, attribute (`Ref` for a reference)."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The surroundings of one stack's values.

    Attributes:
        stack: its name.
        incarnation: how many times a stack of the name has been created.
        parameters: the template's parameters.
        generation: the generation of a resource by logical id.
        exported: the value of an export by name, None if there is none.
        output: the value of an output by (stack, output), None if there is none.
    """

    stack: str
    incarnation: int
    parameters: Mapping[str, Any]
    generation: Callable[[str], int]
    exported: Callable[[str], Any]
    output: Callable[[str, str], Any]

    def resolve(self, value: Any) -> Any:
        """Return a value with symbols for its references; unknown functions stay as they are."""
        if isinstance(value, list):
            return [self.resolve(one) for one in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((key, argument),) = value.items()
            known: dict[str, Callable[[Any], Any]] = {
                "Ref": self._ref,
                "Fn::GetAtt": self._attribute,
                "Fn::Join": self._join,
                "Fn::Sub": self._sub,
                "Fn::Split": self._split,
                "Fn::Select": self._select,
                "Fn::ImportValue": self._import,
                "Fn::GetStackOutput": self._output,
            }
            if key in known:
                return known[key](argument)
        return {key: self.resolve(one) for key, one in value.items()}

    def _ref(self, name: str) -> Any:
        if name == "AWS::StackName":
            return self.stack
        if name == "AWS::StackId":
            arn = "arn:<AWS::Partition>:cloudformation:<AWS::Region>:<AWS::AccountId>"
            return f"{arn}:stack/{self.stack}/{self.stack}-{self.incarnation}"
        if name == "AWS::NoValue":
            return None
        if name.startswith("AWS::"):
            return f"<{name}>"
        if name in self.parameters:
            return self.parameters[name].get("Default", f"<{name}>")
        return self._symbol(name, REF)

    def _symbol(self, logical_id: str, attribute: str) -> str:
        return f"<{self.stack}/{logical_id}#{self.generation(logical_id)}.{attribute}>"

    def _attribute(self, argument: Any) -> Any:
        name, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
        return self._symbol(name, attribute)

    def _join(self, argument: Any) -> Any:
        separator, parts = argument[0], self.resolve(argument[1])
        if isinstance(parts, list) and all(isinstance(part, str | int) for part in parts):
            return str(separator).join(map(str, parts))
        return {"Fn::Join": [separator, parts]}

    def _sub(self, argument: Any) -> Any:
        text, own = argument if isinstance(argument, list) else (argument, {})
        values = self.resolve(own)

        def replaced(found: re.Match[str]) -> str:
            literal, name = found.groups()
            if literal:
                return f"${{{name}}}"
            if name in values:
                return str(values[name])
            return str(self._attribute(name) if "." in name else self._ref(name))

        return _PLACEHOLDER.sub(replaced, text)

    def _split(self, argument: Any) -> Any:
        separator, text = argument[0], self.resolve(argument[1])
        return text.split(separator) if isinstance(text, str) else {"Fn::Split": [separator, text]}

    def _select(self, argument: Any) -> Any:
        index, values = argument[0], self.resolve(argument[1])
        if isinstance(values, list) and str(index).isdigit() and int(index) < len(values):
            return values[int(index)]
        return {"Fn::Select": [index, values]}

    def _import(self, argument: Any) -> Any:
        name = self.resolve(argument)
        value = self.exported(str(name))
        return f"<no export {name}>" if value is None else value

    def _output(self, argument: Any) -> Any:
        asked = self.resolve(argument)
        value = self.output(str(asked.get("StackName")), str(asked.get("OutputName")))
        return f"<no output {asked}>" if value is None else value


def references(value: Any) -> Iterator[tuple[str, str]]:
    """Yield (logical id, attribute) of every reference in a value, pseudo parameters included."""
    match value:
        case list():
            for one in value:
                yield from references(one)
        case {"Ref": name} if len(value) == 1:
            yield name, REF
        case {"Fn::GetAtt": [name, attribute]}:
            yield name, attribute
        case {"Fn::GetAtt": str() as text}:
            yield from _named(text)
        case {"Fn::Sub": [text, own]}:
            yield from (one for one in _in_text(text) if one[0] not in own)
            yield from references(own)
        case {"Fn::Sub": str() as text}:
            yield from _in_text(text)
        case dict():
            for one in value.values():
                yield from references(one)


def _in_text(text: str) -> Iterator[tuple[str, str]]:
    for literal, name in _PLACEHOLDER.findall(text):
        if not literal:
            yield from _named(name)


def _named(text: str) -> Iterator[tuple[str, str]]:
    name, _, attribute = text.partition(".")
    yield name, attribute or REF


def imports(value: Any, resolve: Callable[[Any], Any]) -> Iterator[str]:
    """Yield the names of the exports that a value imports."""
    if isinstance(value, list):
        for one in value:
            yield from imports(one, resolve)
    elif isinstance(value, dict):
        for key, one in value.items():
            if key == "Fn::ImportValue":
                yield str(resolve(one))
            else:
                yield from imports(one, resolve)
