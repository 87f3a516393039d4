"""Strict reading of resolved CloudFormation properties: a property that nobody reads is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

REQUIRED: Final = object()


class Properties:
    """The properties of one resource; `close` refuses each that was not read, by name.

    All readers raise `ValueError` naming the property, what it holds and what is expected.
    """

    def __init__(self, kind: str, values: Mapping[str, Any], path: str = "") -> None:
        self._kind = kind
        self._values = values
        self._path = path
        self._read: set[str] = set()
        self._groups: list[Properties] = []

    def error(self, name: str, message: str) -> ValueError:
        """Return the error that names a property of this group."""
        return ValueError(f"{self._kind}: property {self._path}{name} {message}")

    def value(self, name: str, default: Any = REQUIRED) -> Any:
        """Return a property unchanged."""
        self._read.add(name)
        value = self._values.get(name)
        if value is not None:
            return value
        if default is REQUIRED:
            raise self.error(name, "is missing")
        return default

    def text(self, name: str, default: Any = REQUIRED) -> Any:
        """Return a string, or the default."""
        value = self.value(name, default)
        if value is not default and not isinstance(value, str):
            raise self.error(name, f"is {value!r}: expected a string")
        return value

    def integer(self, name: str, default: Any = REQUIRED, *, low: int, high: int) -> Any:
        """Return a whole number between `low` and `high`; templates may write it as a string."""
        value = self.value(name, default)
        if value is default:
            return value
        if isinstance(value, str) and value.lstrip("-").isdigit():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(name, f"is {value!r}: expected a number from {low} to {high}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean; templates may write it as a string."""
        value = self.value(name, default)
        if value in (True, "true", "True"):
            return True
        if value in (False, "false", "False"):
            return False
        raise self.error(name, f"is {value!r}: expected true or false")

    def choice(self, name: str, default: Any = REQUIRED, *, among: tuple[str, ...]) -> Any:
        """Return one of some strings."""
        value = self.text(name, default)
        if value is not default and value not in among:
            raise self.error(name, f"is {value!r}: expected one of {', '.join(among)}")
        return value

    def group(self, name: str) -> Properties:
        """Return a nested group, empty if absent; it is closed with this one."""
        value = self.value(name, {})
        if not isinstance(value, dict):
            raise self.error(name, f"is {value!r}: expected an object")
        group = Properties(self._kind, value, f"{self._path}{name}.")
        self._groups.append(group)
        return group

    def groups(self, name: str) -> list[Properties]:
        """Return a list of nested groups; each is closed with this one."""
        value = self.value(name, [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self.error(name, f"is {value!r}: expected a list of objects")
        groups = [
            Properties(self._kind, one, f"{self._path}{name}[{number}].")
            for number, one in enumerate(value)
        ]
        self._groups.extend(groups)
        return groups

    def ignore(self, *names: str) -> None:
        """Accept properties that have no meaning on one machine (roles, tags, keys)."""
        self._read.update(names)

    def close(self) -> None:
        """Refuse unread properties, here and in the groups."""
        for name in self._values:
            if name not in self._read:
                raise self.error(name, "is not known to the local application")
        for group in self._groups:
            group.close()


def function_of(name: str) -> str:
    """Return the bare name of a function given by name or ARN, without version or alias."""
    if name.startswith("arn:"):
        return name.split(":")[6]
    return name.split(":", maxsplit=1)[0]
