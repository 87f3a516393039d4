"""The OpenAPI document: valid, whole, and the same as the one that is kept."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from fairbox.api.routes import ROUTES
from fairbox.problems import KINDS
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from tests.functions.api_client import DOCUMENT, ROOT

if TYPE_CHECKING:
    from tests.functions.api_client import ApiClient


EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "t"}


def test_the_document_is_valid_openapi_3_1() -> None:
    validate(DOCUMENT, cls=OpenAPIV31SpecValidator)
    assert DOCUMENT["openapi"].startswith("3.1")


def test_the_api_serves_the_document_that_is_kept(api: ApiClient) -> None:
    kept = (ROOT / "docs" / "reference" / "openapi.json").read_text()
    assert api.call("GET", "/openapi.json").json == json.loads(kept)


def test_every_route_and_every_kind_of_problem_is_told() -> None:
    operations = {
        (method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item
    }
    assert operations == {(r.method, r.path.replace("+}", "}")) for r in ROUTES}
    page = (ROOT / "docs/reference/http-api.md").read_text()
    for method, path in operations:
        (row,) = re.findall(rf"^\| .*`{re.escape(path)}`.* \| (.*) \|$", page, re.MULTILINE)
        assert f"{method}: " in row, path
    text = json.dumps(DOCUMENT)
    told = {kind for kind in KINDS if f"urn:fairbox:problem:{kind}`" in text}
    clients = {"feed-refused"}  # which do not ask here
    assert set(KINDS) - told == {"method-not-allowed"} | clients


def test_every_operation_tells_what_the_gateway_says_itself() -> None:
    for path, item in DOCUMENT["paths"].items():
        for operation in item.values():
            said = operation["responses"]["403"]["content"]["application/json"]
            assert said == {"schema": {"$ref": "#/components/schemas/GatewayOut"}}, path


def test_every_body_has_an_example_that_its_schema_takes() -> None:
    schemas = {"$defs": DOCUMENT["components"]["schemas"]}
    shown = 0
    for item in DOCUMENT["paths"].values():
        for operation in item.values():
            for kind, told in operation.get("requestBody", {}).get("content", {}).items():
                if kind == "*/*":
                    continue
                text = json.dumps(told["schema"] | schemas)
                schema = json.loads(text.replace("#/components/schemas/", "#/$defs/"))
                jsonschema.validate(told["example"], schema)
                shown += 1
    assert shown == 23


def test_numbers_that_are_sent_have_bounds_in_the_document() -> None:
    """Else a client that keeps to the document is refused, and no test tries the boundaries."""
    unbounded = set()
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for field, told in schema.get("properties", {}).items():
            kinds = [told, *told.get("anyOf", [])]
            if name.endswith("In") and any(k.get("type") in {"integer", "number"} for k in kinds):
                merged = {key for kind in kinds for key in kind}
                if not {"minimum", "maximum"} <= merged:
                    unbounded.add(f"{name}.{field}")
    every_time = {"RedriveWhereIn.died_from", "RedriveWhereIn.died_until"}
    assert unbounded == every_time


def test_links_name_operations_and_parameters_that_there_are() -> None:
    operations = {o["operationId"]: o for item in DOCUMENT["paths"].values() for o in item.values()}
    links = [
        link
        for operation in operations.values()
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert len(links) > 20
    for link in links:
        names = {p["name"] for p in operations[link["operationId"]]["parameters"]}
        assert set(link.get("parameters", ())) <= names
        needed = {p["name"] for p in operations[link["operationId"]]["parameters"] if p["required"]}
        assert needed <= set(link.get("parameters", ()))


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ("MessageIn", {"body": 1, "partition_key": "a"}, {"body": 1, "partition_key": "a" * 257}),
        ("MessageIn", {"body": 1, "headers": {"a": "b"}}, {"body": 1, "headers": {"a b": "c"}}),
        ("MessageIn", {"body": 1, "id": None}, {"body": 1, "id": "7"}),
        ("TopicIn", {"dedup_window": 1}, {"dedup_window": 0}),
        ("TopicIn", {"tenant_weights": {"a": 1}}, {"tenant_weights": {"a": 0}}),
        ("SubscriptionIn", {"destination": "sqs:http://q/x"}, {"destination": "fax:1"}),
        (
            "SubscriptionIn",
            {"destination": "sqs:http://q/x", "max_in_flight": 1},
            {"destination": "sqs:http://q/x", "max_in_flight": 0},
        ),
        ("AcksIn", {"receipts": ["a"]}, {"receipts": ["a", "a"]}),
        ("AddIn", {"count": 1, "request_id": "a"}, {"count": 0, "request_id": "a"}),
        ("AddIn", {"count": 1, "request_id": "a"}, {"count": 1, "request_id": ""}),
        ("BatchIn", {"parent_item": None}, {"parent_item": "a:b:c"}),
        ("CloudEvent", EVENT | {"more": 7}, EVENT | {"more": {}}),
        ("CloudEvent", EVENT | {"more": True}, EVENT | {"A b": "x"}),
        (
            "CloudEvent",
            EVENT | {"datacontenttype": "a/b; c=d"},
            EVENT | {"datacontenttype": "a/b;\tc=d"},
        ),
        ("CloudEvent", EVENT | {"data": 1}, EVENT | {"data": 1, "data_base64": ""}),
    ],
)
def test_the_document_refuses_what_the_api_refuses(
    schema: str, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    told = DOCUMENT["components"]["schemas"][schema] | {"components": DOCUMENT["components"]}
    jsonschema.validate(good, told)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(bad, told)


def test_the_stack_routes_what_the_api_answers() -> None:
    text = (ROOT / "stacks/fairbox_cdk/api.py").read_text()
    for route in ROUTES:
        assert f'("{route.method}", "{route.path}")' in text
