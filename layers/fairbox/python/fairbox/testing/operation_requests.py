"""Requests: which parameters an operation knows, its placeholders, the units that it answers."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import botocore.session
from botocore.validate import ParamValidator

from .expressions import (
    CompiledCondition,
    KeyCondition,
    KeyMissedError,
    check_operands,
    compile_condition,
    compile_key_condition,
)
from .grammar import ExpressionError
from .paths import Names, Projection, compile_projection
from .refusals import Refusal, invalid, parameter_error
from .units import item_size
from .updates import Update, compile_update
from .values import Value, check_names, take_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Request = dict[str, Any]
Response = dict[str, Any]
Compiled = TypeVar("Compiled", CompiledCondition, KeyCondition, Update)

MAX_PLACEHOLDER_BYTES: Final = 2 * 1024 * 1024  # of all names, and of all values
_REST: Final = re.compile("[A-Za-z0-9_]{1,254}")
_PLACEHOLDERS: Final = " ExpressionAttributeNames ExpressionAttributeValues"
_WRITE: Final = (
    "ConditionExpression ReturnValues ReturnConsumedCapacity ReturnItemCollectionMetrics"
    " ReturnValuesOnConditionCheckFailure" + _PLACEHOLDERS
)
_PAGE: Final = (
    "IndexName Select Limit ConsistentRead ExclusiveStartKey FilterExpression"
    " ProjectionExpression ReturnConsumedCapacity" + _PLACEHOLDERS
)


def _known(required: str, optional: str = "") -> tuple[frozenset[str], frozenset[str]]:
    needed = frozenset(required.split())
    return needed, needed | frozenset(optional.split())


PARAMETERS: Final = {
    "CreateTable": _known(
        "TableName KeySchema AttributeDefinitions",
        "BillingMode ProvisionedThroughput GlobalSecondaryIndexes StreamSpecification"
        " SSESpecification Tags TableClass DeletionProtectionEnabled WarmThroughput"
        " OnDemandThroughput",
    ),
    "DescribeTable": _known("TableName"),
    "DeleteTable": _known("TableName"),
    "ListTables": _known("", "ExclusiveStartTableName Limit"),
    "UpdateTimeToLive": _known("TableName TimeToLiveSpecification"),
    "DescribeTimeToLive": _known("TableName"),
    "GetItem": _known(
        "TableName Key",
        "ConsistentRead ProjectionExpression ExpressionAttributeNames ReturnConsumedCapacity",
    ),
    "PutItem": _known("TableName Item", _WRITE),
    "UpdateItem": _known("TableName Key", "UpdateExpression " + _WRITE),
    "DeleteItem": _known("TableName Key", _WRITE),
    "Query": _known("TableName KeyConditionExpression", "ScanIndexForward " + _PAGE),
    "Scan": _known("TableName", "Segment TotalSegments " + _PAGE),
    "BatchGetItem": _known("RequestItems", "ReturnConsumedCapacity"),
    "BatchWriteItem": _known("RequestItems", "ReturnConsumedCapacity ReturnItemCollectionMetrics"),
    "TransactWriteItems": _known(
        "TransactItems", "ClientRequestToken ReturnConsumedCapacity ReturnItemCollectionMetrics"
    ),
    "TransactGetItems": _known("TransactItems", "ReturnConsumedCapacity"),
    "BatchExecuteStatement": _known("Statements", "ReturnConsumedCapacity"),
}


def check_parameters(operation: str, request: Request) -> None:
    """Refuse missing and unknown parameters, as botocore does before it sends anything."""
    required, known = PARAMETERS[operation]
    given = request.keys()
    if required <= given <= known:
        return
    missing = [f'Missing required parameter in input: "{name}"' for name in required - given]
    unknown = [
        f'Unknown parameter in input: "{name}", must be one of: {", ".join(sorted(known))}'
        for name in sorted(given - known)
    ]
    raise parameter_error("\n".join(sorted(missing) + unknown))


def check_shapes(operation: str, request: Request) -> None:
    """Refuse parameters that botocore's model of the service refuses, in botocore's words."""
    # the model of the SDK that is installed, so that the words are those that users see
    shape = _service_model().operation_model(operation).input_shape
    found = ParamValidator().validate(request, shape)
    if found.has_errors():
        raise parameter_error(found.generate_report())


@lru_cache(maxsize=1)
def _service_model() -> Any:
    return botocore.session.get_session().get_service_model("dynamodb")


@lru_cache(maxsize=4096)
def _check_placeholders(which: str, mark: str, refs: tuple[str, ...]) -> None:
    """Refuse placeholders that are no `mark` and 1 to 254 letters, digits or underscores."""
    for ref in refs:
        if ref[:1] != mark or not _REST.fullmatch(ref, 1):
            raise invalid(f'ExpressionAttribute{which} contains invalid key: "{ref}"')


@lru_cache(maxsize=4096)
def _check_named(names: Names) -> None:
    _check_placeholders("Names", "#", tuple(ref for ref, _ in names))
    check_names(name for _, name in names)
    if sum(len(ref + name) for ref, name in names) > MAX_PLACEHOLDER_BYTES:
        raise invalid("ExpressionAttributeNames exceeds max size")


class Expressions:
    """The expressions of one request, with the placeholders that they share."""

    __slots__ = ("_request", "_used_names", "_used_values", "names", "values")

    def __init__(self, request: Mapping[str, Any]) -> None:
        names = request.get("ExpressionAttributeNames")
        values = request.get("ExpressionAttributeValues")
        if names is not None and not names:
            raise invalid("ExpressionAttributeNames must not be empty")
        if values is not None and not values:
            raise invalid("ExpressionAttributeValues must not be empty")

        self._request = request
        self.names: Names = tuple(names.items()) if names else ()
        # cached, as names repeat with each call of the same code; values do not
        _check_named(self.names)
        _check_placeholders("Values", ":", tuple(values or ()))
        self.values: dict[str, Value] = (
            {ref: take_value(value) for ref, value in values.items()} if values else {}
        )
        if item_size(self.values) > MAX_PLACEHOLDER_BYTES:
            raise invalid("ExpressionAttributeValues exceeds max size")

        # the service refuses placeholders that nothing uses: `done` compares
        self._used_names: set[str] = set()
        self._used_values: set[str] = set()

    def condition(self, parameter: str = "ConditionExpression") -> CompiledCondition | None:
        """The condition or filter in a parameter, where there is one."""
        found = self._compiled(parameter, compile_condition)
        if found is not None and found.checks:
            try:
                check_operands(found.tree, self.values)
            except ExpressionError as error:
                raise invalid(f"Invalid {parameter}: {error}") from None
        return found

    def key_condition(self) -> KeyCondition:
        """The key condition of a query."""
        found = self._compiled("KeyConditionExpression", compile_key_condition)
        if found is None:
            raise invalid(
                "Either the KeyConditions or KeyConditionExpression parameter must be"
                " specified in the request."
            )
        return found

    def update(self) -> Update | None:
        """The update, where there is one."""
        found = self._compiled("UpdateExpression", compile_update)
        if found is not None:
            try:
                found.check_operands(self.values)
            except ExpressionError as error:
                raise invalid(f"Invalid UpdateExpression: {error}") from None
        return found

    def projection(self) -> Projection | None:
        """The projection, where there is one."""
        text = self._request.get("ProjectionExpression")
        if text is None:
            return None
        try:
            found = compile_projection(text, self.names)
        except ExpressionError as error:
            raise invalid(f"Invalid ProjectionExpression: {error}") from None
        self._used_names |= found.names
        return found

    def _compiled(
        self, parameter: str, compiler: Callable[[str, Names], Compiled]
    ) -> Compiled | None:
        text = self._request.get(parameter)
        if text is None:
            return None

        try:
            found = compiler(text, self.names)
        # the service names no parameter here: the expression reads, and does not fit the table
        except KeyMissedError as error:
            raise invalid(str(error)) from None
        except ExpressionError as error:
            raise invalid(f"Invalid {parameter}: {error}") from None

        if found.names:
            self._used_names |= found.names
        if found.values:
            self._used_values |= found.values
            # names are checked while parsing; values are not part of the cached tree, so each time
            for ref in found.values:
                if ref not in self.values:
                    raise invalid(
                        f"Invalid {parameter}: An expression attribute value used in expression "
                        f"is not defined; attribute value: {ref}"
                    )

        return found

    def done(self) -> None:
        """Refuse placeholders that no expression used."""
        if len(self._used_names) != len(self.names):
            self._refuse_unused("Names", {name for name, _ in self.names} - self._used_names)
        if len(self._used_values) != len(self.values):
            self._refuse_unused("Values", self.values.keys() - self._used_values)

    def _refuse_unused(self, which: str, unused: set[str]) -> None:
        # the service has other words where there is no expression at all
        if not any(name.endswith("Expression") for name in self._request):
            raise invalid(
                f"ExpressionAttribute{which} can only be specified when using expressions"
            )
        raise invalid(
            f"Value provided in ExpressionAttribute{which} unused in expressions: "
            f"keys: {{{', '.join(sorted(unused))}}}"
        )


def projection_of(request: Mapping[str, Any]) -> Projection | None:
    """The projection of a read that has no other expression."""
    expressions = Expressions(request)
    projection = expressions.projection()
    expressions.done()
    return projection


class Bill:
    """The units of one call by table and index, and their shape in the answer."""

    def __init__(self, mode: str | None, kind: str = "") -> None:
        if mode not in {None, "NONE", "TOTAL", "INDEXES"}:
            raise Refusal("ValidationException", "Invalid ReturnConsumedCapacity: " + str(mode))
        self.wanted = mode in {"TOTAL", "INDEXES"}
        self._indexed = mode == "INDEXES"
        self._kind = kind  # "Read" or "Write" where a transaction names its units apart
        self._tables: dict[str, float] = {}
        self._indexes: dict[str, dict[str, float]] = {}

    def add(self, table: str, units: float, indexes: Mapping[str, float] | None = None) -> None:
        """Add units of a table and of its indexes."""
        self._tables[table] = self._tables.get(table, 0.0) + units
        of = self._indexes.setdefault(table, {})
        for name, cost in (indexes or {}).items():
            of[name] = of.get(name, 0.0) + cost

    def entries(self) -> list[Response]:
        """One ConsumedCapacity for each table."""
        return [self._entry(table) for table in self._tables]

    def added(self, response: Response) -> Response:
        """Return a response with the ConsumedCapacity of each table, where it is asked for."""
        if self.wanted:
            response["ConsumedCapacity"] = self.entries()
        return response

    def _entry(self, table: str) -> Response:
        units, indexes = self._tables[table], self._indexes[table]
        entry: Response = {"TableName": table, **self._units(units + sum(indexes.values()))}
        if self._indexed:
            entry["Table"] = self._units(units)
            if indexes:
                entry["GlobalSecondaryIndexes"] = {
                    name: self._units(cost) for name, cost in indexes.items()
                }
        return entry

    def _units(self, units: float) -> Response:
        units = float(units)
        if self._kind:
            return {"CapacityUnits": units, f"{self._kind}CapacityUnits": units}
        return {"CapacityUnits": units}
