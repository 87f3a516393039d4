"""Resource types: their registry schemas, as cfn-lint ships them, and some rules beside these."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import cfnlint.data.AdditionalSpecs
from cfnlint.helpers import load_resource
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER, ResourceNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

Path = tuple[str, ...]
_REGION: Final = "us-east-1"
_HANDLED: Final = ("Custom::", "AWS::CloudFormation::CustomResource")
_STATEFUL: Final = frozenset(
    (
        *load_resource(cfnlint.data.AdditionalSpecs, "StatefulResources.json")["ResourceTypes"],
        "AWS::Glue::Database",  # the definitions of its tables, made by jobs
        "AWS::KinesisFirehose::DeliveryStream",  # records that are not yet in the bucket
        "AWS::SNS::Topic",  # subscriptions, made by hand
    )
)
LOGS: Final = frozenset({"AWS::Logs::LogGroup"})
"""Types with data that no program reads back: it may go on with an empty one."""
# what AWS takes for the same thing although the schema's identifier is made by the service
_ALSO_UNIQUE: Final[dict[str, tuple[Path, ...]]] = {
    "AWS::ApiGatewayV2::Route": (("ApiId",), ("RouteKey",)),
    "AWS::Glue::Database": (("CatalogId",), ("DatabaseInput", "Name")),
    "AWS::Lambda::EventSourceMapping": (("EventSourceArn",), ("FunctionName",)),
}
# numbers that AWS raises and never lowers
_ONLY_RISE: Final[dict[str, tuple[Path, ...]]] = {
    "AWS::DynamoDB::Table": (
        ("WarmThroughput", "ReadUnitsPerSecond"),
        ("WarmThroughput", "WriteUnitsPerSecond"),
    ),
}
# attributes that change in an update in place, and the properties that change them
_FOLLOWS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("AWS::DynamoDB::Table", "StreamArn"): ("StreamSpecification",),
}


@dataclass(frozen=True, kw_only=True)
class Type:
    """The rules of one resource type.

    Attributes:
        known: whether the registry has a schema for it; a custom resource has none.
        create_only: paths of properties whose change replaces a resource.
        perhaps_create_only: paths of properties whose change may replace it.
        names: sets of paths that identify a resource; a template that sets a whole one names it.
        deletes_first: whether a replaced resource is deleted before the new one is created.
        stateful: whether it keeps data.
        only_rise: paths of numbers that can rise only, even if the template leaves them out.
        stable: attributes that change only by replacement.
    """

    name: str
    known: bool
    create_only: tuple[Path, ...] = ()
    perhaps_create_only: tuple[Path, ...] = ()
    names: tuple[tuple[Path, ...], ...] = ()
    deletes_first: bool = False
    stateful: bool = False
    only_rise: tuple[Path, ...] = ()
    stable: frozenset[str] = frozenset({"Arn"})

    def attribute_follows(self, attribute: str) -> tuple[str, ...] | None:
        """Return the properties that change an attribute in place; None: nobody says which."""
        if attribute in self.stable:
            return ()
        return _FOLLOWS.get((self.name, attribute))


@cache
def type_of(name: str) -> Type:
    """Return the rules of a type by its name, such as `AWS::SQS::Queue`."""
    if name.startswith(_HANDLED):  # the registry has a schema that says nothing
        return Type(name=name, known=False)
    try:
        schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(_REGION, name).schema
    except ResourceNotFoundError:
        return Type(name=name, known=False, stateful=name in _STATEFUL)
    create_only = _paths(schema, "createOnlyProperties")
    identifier = _paths(schema, "primaryIdentifier")
    names = [identifier] if not set(identifier) & set(_paths(schema, "readOnlyProperties")) else []
    # SQS calls a queue by its address, SNS a topic by its ARN: yet both may be named
    own = ("Name", f"{name.rpartition('::')[2]}Name", f"{name.rpartition('::')[2]}PolicyName")
    names = names or [(path,) for path in create_only if path[-1] in own and len(path) == 1]
    if name in _ALSO_UNIQUE:
        names.append(_ALSO_UNIQUE[name])
    return Type(
        name=name,
        known=True,
        create_only=create_only,
        perhaps_create_only=_paths(schema, "conditionalCreateOnlyProperties"),
        names=tuple(dict.fromkeys(names)),
        deletes_first=schema.get("replacementStrategy") == "delete_then_create",
        stateful=name in _STATEFUL,
        only_rise=_ONLY_RISE.get(name, ()),
        stable=frozenset({"Arn", *(".".join(path) for path in (*create_only, *identifier))}),
    )


def _paths(schema: dict[str, Any], key: str) -> tuple[Path, ...]:
    return tuple(
        tuple(path.removeprefix("/properties/").split("/")) for path in schema.get(key, ())
    )


def at(value: Any, path: Path) -> list[Any]:
    """Return the values at a path of a resource's properties; `*` stands for every element."""
    if not path:
        return [value]
    return [found for one in _steps(value, path[0]) for found in at(one, path[1:])]


def _steps(value: Any, name: str) -> Iterator[Any]:
    if name == "*" and isinstance(value, list):
        yield from value
    elif isinstance(value, dict) and name in value:
        yield value[name]
