"""The HTTP API: events of format 2.0, responses, choice of routes, limits."""

from __future__ import annotations

import base64
import json
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from local.functions.invoker import InvokeResult
from local.gateway.http_api import (
    BODY_LIMIT,
    ApiRoute,
    Gateway,
    at_one_address,
    choose_route,
    read_cors,
    read_routes,
)
from local.gateway.http_events import Match, Request, build_event, read_result
from local.gateway.web_server import WebServer
from local.workspace import LocalError, choose_port
from tests.local.assemblies import read_template, sample_function

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = datetime(2026, 11, 21, 6, 7, 8, 900_000, tzinfo=UTC)


def request(**changes: Any) -> Request:
    values: dict[str, Any] = {
        "method": "POST",
        "path": "/topics/a%2Fb/messages",
        "query": "x=1&y=%20&x=2&z",
        "headers": [
            ("Host", "127.0.0.1:8080"),
            ("Accept", "text/plain"),
            ("accept", "application/json"),
            ("Cookie", "a=1; b=2"),
            ("Content-Type", "application/json"),
            ("User-Agent", "test"),
        ],
        "body": b'{"id":7}',
    }
    return Request(**{**values, **changes})


def event_of(incoming: Request, *, iam: bool = True) -> dict[str, Any]:
    match = Match(
        route_key="POST /topics/{topic}/messages", path_parameters={"topic": "a/b"}, iam=iam
    )
    return build_event(incoming, match, api_id="api", request_id="id-1", now=NOW)


def test_an_event_has_the_shape_of_format_2() -> None:
    event = event_of(request())
    assert event.pop("requestContext") == {
        "accountId": "123456789012",
        "apiId": "api",
        "authorizer": {
            "iam": {
                "accessKey": "local",
                "accountId": "123456789012",
                "callerId": "local",
                "cognitoIdentity": None,
                "principalOrgId": None,
                "userArn": "arn:aws:iam::123456789012:user/local",
                "userId": "local",
            }
        },
        "domainName": "127.0.0.1",
        "domainPrefix": "local",
        "http": {
            "method": "POST",
            "path": "/topics/a/b/messages",
            "protocol": "HTTP/1.1",
            "sourceIp": "127.0.0.1",
            "userAgent": "test",
        },
        "requestId": "id-1",
        "routeKey": "POST /topics/{topic}/messages",
        "stage": "$default",
        "time": "21/Nov/2026:06:07:08 +0000",
        "timeEpoch": 1795241228900,
    }
    assert event == {
        "version": "2.0",
        "routeKey": "POST /topics/{topic}/messages",
        "rawPath": "/topics/a/b/messages",
        "rawQueryString": "x=1&y=%20&x=2&z",
        "cookies": ["a=1", "b=2"],
        "headers": {
            "host": "127.0.0.1:8080",
            "accept": "text/plain,application/json",
            "content-type": "application/json",
            "user-agent": "test",
            "x-forwarded-for": "127.0.0.1",
            "x-forwarded-proto": "http",
        },
        "queryStringParameters": {"x": "1,2", "y": " ", "z": ""},
        "pathParameters": {"topic": "a/b"},
        "body": '{"id":7}',
        "isBase64Encoded": False,
    }


def test_what_is_empty_is_left_out_of_an_event() -> None:
    incoming = request(method="GET", query="", headers=[], body=b"")
    match = Match(route_key="$default", path_parameters={}, iam=False)
    event = build_event(incoming, match, api_id="api", request_id="id", now=NOW)
    absent = {"body", "cookies", "queryStringParameters", "pathParameters"}
    assert not absent & set(event)
    assert "authorizer" not in event["requestContext"]


@pytest.mark.parametrize(
    ("content_type", "body", "encoded"),
    [
        ("application/json; charset=utf-8", b"{}", False),
        ("application/cloudevents+json", b"{}", False),
        ("text/plain", "ö".encode(), False),
        ("text/plain", b"\xff\xfe", True),
        ("application/octet-stream", b"abc", True),
        ("image/png", b"\x89PNG", True),
    ],
)
def test_a_body_is_text_or_base64(content_type: str, body: bytes, encoded: bool) -> None:
    event = event_of(request(headers=[("content-type", content_type)], body=body))
    assert event["isBase64Encoded"] is encoded
    found = event["body"]
    assert (base64.b64decode(found) if encoded else found.encode()) == body


def result(answer: Any, error: str | None = None) -> InvokeResult:
    return InvokeResult(json.dumps(answer).encode(), error)


def test_a_result_with_a_status_is_mapped_as_told() -> None:
    response = read_result(
        result(
            {
                "statusCode": 202,
                "headers": {"X-One": "1", "X-Yes": True},
                "cookies": ["a=1", "b=2"],
                "body": base64.b64encode(b"\x00\xff").decode(),
                "isBase64Encoded": True,
            }
        )
    )
    assert (response.status, response.body) == (202, b"\x00\xff")
    assert response.headers == (
        ("x-one", "1"),
        ("x-yes", "true"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("content-type", "text/plain; charset=utf-8"),
    )


def test_a_result_without_a_status_is_the_body_itself() -> None:
    response = read_result(result({"answer": 1}))
    assert (response.status, json.loads(response.body)) == (200, {"answer": 1})
    assert read_result(result("text")).body == b"text"


@pytest.mark.parametrize(
    "broken",
    [
        result({"errorMessage": "x"}, "Unhandled"),
        result({"statusCode": "many"}),
        result({"statusCode": 200, "body": {"not": "text"}}),
        result({"statusCode": 200, "body": "?", "isBase64Encoded": True}),
        result({"statusCode": 200, "headers": {"x": "a\r\nset-cookie: b"}}),
        InvokeResult(b"{", None),
    ],
)
def test_an_error_or_a_malformed_result_is_a_500(broken: InvokeResult) -> None:
    response = read_result(broken)
    assert (response.status, response.body) == (500, b'{"message":"Internal Server Error"}')


def routes(*keys: str) -> list[ApiRoute]:
    parsed = [ApiRoute.parse(key, function=key, iam=False) for key in keys]
    return sorted(parsed, key=lambda route: route.rank)


@pytest.mark.parametrize(
    ("method", "path", "expected", "parameters"),
    [
        ("GET", "/topics", "GET /topics", {}),
        ("GET", "/topics/a", "GET /topics/{topic}", {"topic": "a"}),
        ("GET", "/topics/own", "GET /topics/own", {}),
        ("PUT", "/topics/a", "ANY /topics/{topic}", {"topic": "a"}),
        ("GET", "/topics/a%2Fb", "GET /topics/{topic}", {"topic": "a/b"}),
        ("GET", "/topics/a/b", "ANY /{proxy+}", {"proxy": "topics/a/b"}),
        ("GET", "/", "$default", {}),
    ],
)
def test_the_most_specific_route_takes_a_request(
    method: str, path: str, expected: str, parameters: dict[str, str]
) -> None:
    found = choose_route(
        routes(
            "$default",
            "ANY /{proxy+}",
            "ANY /topics/{topic}",
            "GET /topics/{topic}",
            "GET /topics/own",
            "GET /topics",
        ),
        request(method=method, path=path),
    )
    assert found is not None
    assert found[0].key == expected
    assert found[1].path_parameters == parameters


def test_a_request_that_no_route_takes_finds_none() -> None:
    assert choose_route(routes("GET /topics"), request(path="/other")) is None


def api_template(
    folder: Path, *, route: dict[str, Any], stage: str = "$default", **api: Any
) -> Any:
    function = {"Fn::GetAtt": ["Sample", "Arn"]}
    resources = {
        "Sample": sample_function(),
        "Api": {"Type": "AWS::ApiGatewayV2::Api", "Properties": {"ProtocolType": "HTTP", **api}},
        "Integration": {
            "Type": "AWS::ApiGatewayV2::Integration",
            "Properties": {
                "ApiId": {"Ref": "Api"},
                "IntegrationType": "AWS_PROXY",
                "IntegrationUri": function,
                "PayloadFormatVersion": "2.0",
            },
        },
        "Route": {
            "Type": "AWS::ApiGatewayV2::Route",
            "Properties": {
                "ApiId": {"Ref": "Api"},
                "RouteKey": "GET /topics",
                "Target": {"Fn::Join": ["", ["integrations/", {"Ref": "Integration"}]]},
                **route,
            },
        },
        "Stage": {
            "Type": "AWS::ApiGatewayV2::Stage",
            "Properties": {"ApiId": {"Ref": "Api"}, "StageName": stage},
        },
    }
    return read_template(folder, {"App": {"Resources": resources}})


def test_the_templates_routes_lead_to_their_functions(tmp_path: Path) -> None:
    (route,) = read_routes(api_template(tmp_path, route={"AuthorizationType": "AWS_IAM"}), "Api")
    assert route.key == "GET /topics"
    assert route.function == "arn:aws:lambda:us-east-1:123456789012:function:App-Sample"
    assert route.iam


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"route": {"AuthorizationType": "JWT"}}, "Route .*JWT"),
        ({"route": {}, "stage": "live"}, "Stage .*live"),
        ({"route": {"RouteKey": "nothing"}}, "nothing"),
    ],
)
def test_a_route_of_an_unknown_kind_is_refused(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(LocalError, match=named):
        read_routes(api_template(tmp_path, **changes), "Api")


class FakeInvoker:
    """Answers with the event; the function `hangs` until `let_go`."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def invoke(self, function: str, payload: bytes) -> InvokeResult:
        if function == "hangs":
            self.let_go.wait(60)
        return InvokeResult(payload, None)


@pytest.fixture
def served() -> Iterator[tuple[str, FakeInvoker]]:
    invoker = FakeInvoker()
    gateway = Gateway(
        routes=[
            ApiRoute.parse("POST /echo", function="f", iam=True, seconds=60),
            ApiRoute.parse("POST /hang", function="hangs", iam=True, seconds=0.1),
        ],
        invoker=invoker,
        api_id="api",
        new_id=lambda: "id-1",
    )
    server = WebServer(gateway.app, port=choose_port(0, "api"), name="api")
    server.start()
    yield server.url, invoker
    invoker.let_go.set()
    gateway.close()
    server.stop()


def fetch(url: str, body: bytes, method: str = "POST") -> tuple[int, Any]:
    asked = urllib.request.Request(url, data=body, method=method)  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read())


def test_a_request_over_the_wire_reaches_the_function(served: tuple[str, FakeInvoker]) -> None:
    status, event = fetch(f"{served[0]}/echo?a=b", b"body")
    assert status == 200
    assert event["rawQueryString"] == "a=b"
    assert event["requestContext"]["authorizer"]["iam"]["userId"] == "local"


def test_an_unknown_path_is_not_found(served: tuple[str, FakeInvoker]) -> None:
    assert fetch(f"{served[0]}/other", b"") == (404, {"message": "Not Found"})


def test_a_body_over_the_limit_is_refused(served: tuple[str, FakeInvoker]) -> None:
    status, answer = fetch(f"{served[0]}/echo", b"x" * (BODY_LIMIT + 1))
    assert (status, answer) == (413, {"message": "Request Entity Too Large"})


def test_a_function_over_the_gateways_time_is_unavailable(
    served: tuple[str, FakeInvoker],
) -> None:
    assert fetch(f"{served[0]}/hang", b"x") == (503, {"message": "Service Unavailable"})


def test_apis_share_an_address_and_each_allows_its_own_origins(tmp_path: Path) -> None:
    allowed = {
        "AllowOrigins": ["*"],
        "AllowMethods": ["POST"],
        "AllowHeaders": ["authorization"],
        "ExposeHeaders": ["retry-after"],
        "MaxAge": 7200,
    }
    route = {"RouteKey": "POST /poll"}
    template = api_template(tmp_path, route=route, CorsConfiguration=allowed)
    common: dict[str, Any] = {"invoker": FakeInvoker(), "api_id": "api", "new_id": lambda: "1"}
    default = Gateway(routes=[ApiRoute.parse("$default", function="f", iam=True)], **common)
    polled = Gateway(routes=read_routes(template, "Api"), cors=read_cors(template, "Api"), **common)
    app = at_one_address([default, polled])
    server = WebServer(app, port=choose_port(0, "api"), name="api")
    server.start()

    def ask(path: str, method: str = "POST", **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["origin"] = "https://a.test"
        asked = urllib.request.Request(server.url + path, headers=named, method=method)  # noqa: S310
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - loopback
            return answer.headers, answer.read()

    asks = {"access_control_request_method": "POST"}
    headers, _ = ask("/poll", "OPTIONS", access_control_request_headers="authorization", **asks)
    assert headers["access-control-allow-origin"] == "*"
    assert headers["access-control-max-age"] == "7200"
    headers, body = ask("/poll")
    assert headers["access-control-expose-headers"] == "retry-after"
    assert json.loads(body)["routeKey"] == "POST /poll"
    headers, body = ask("/topics")
    assert headers["access-control-allow-origin"] is None
    assert json.loads(body)["routeKey"] == "$default"
    server.stop()
    for gateway in (default, polled):
        gateway.close()
