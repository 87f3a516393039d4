"""The stack of the HTTP API: authorisation, logs, limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.stacks.assembly import plain

if TYPE_CHECKING:
    from tests.stacks.assembly import Assembly


def test_every_route_asks_for_iam_credentials_and_ends_in_the_api_function(
    assembly: Assembly,
) -> None:
    routes = assembly.of_type("AWS::ApiGatewayV2::Route")
    assert all(route["AuthorizationType"] == "AWS_IAM" for route in routes.values())
    (integration,) = assembly.of_type("AWS::ApiGatewayV2::Integration").values()
    assert plain(integration["IntegrationUri"]) == "ApiFunction"
    assert integration["PayloadFormatVersion"] == "2.0"


def test_the_routes_are_those_of_the_surface(assembly: Assembly) -> None:
    routes = assembly.of_type("AWS::ApiGatewayV2::Route").values()
    assert {route["RouteKey"] for route in routes} == {
        "POST /topics/{topic}/messages",
        "GET /topics/{topic}/messages",
        "POST /topics/{topic}/redrive",
        "GET /messages/{ref+}",
        "DELETE /messages/{ref+}",
        "PATCH /messages/{ref+}",
        "DELETE /topics/{topic}/messages",
        "DELETE /topics/{topic}/dead",
        "GET /topics/{topic}/stats",
        "POST /topics/{topic}/pause",
        "POST /topics/{topic}/resume",
        "POST /topics/{topic}/resize",
        "GET /topics/{topic}/epochs",
        "DELETE /topics/{topic}",
        "GET /topics",
        "GET /topics/{topic}",
        "PUT /topics/{topic}",
        "PUT /topics/{topic}/subscriptions/{name}",
        "DELETE /topics/{topic}/subscriptions/{name}",
        "PUT /topics/{topic}/subscriptions/{name}/pause",
        "DELETE /topics/{topic}/subscriptions/{name}/pause",
        "POST /batches",
        "GET /batches",
        "POST /batches/acks",
        "POST /batches/fails",
        "POST /batches/retries",
        "GET /batches/{id}",
        "DELETE /batches/{id}",
        "POST /batches/{id}/items",
        "POST /batches/{id}/seal",
        "GET /batches/{id}/missing",
        "GET /batches/{id}/failed",
        "PUT /feeds/{feed}",
        "GET /feeds/{feed}",
        "DELETE /feeds/{feed}",
        "GET /feeds/{feed}/{key+}",
        "POST /feeds/{feed}/{key+}",
        "POST /feed-tokens",
        "POST /topics/{topic}/receive",
        "POST /topics/{topic}/receive-dead",
        "POST /acks",
        "POST /nacks",
        "POST /extensions",
        "POST /releases",
        "GET /stats",
        "GET /openapi.json",
        "$default",
    }


def test_no_other_origin_may_call_from_a_browser(assembly: Assembly) -> None:
    (api,) = assembly.of_type("AWS::ApiGatewayV2::Api").values()
    assert "CorsConfiguration" not in api


def test_calls_are_limited_and_logged_as_json_that_is_kept_for_a_time(assembly: Assembly) -> None:
    (stage,) = assembly.of_type("AWS::ApiGatewayV2::Stage").values()
    assert stage["StageName"] == "$default"
    assert stage["AutoDeploy"] is True
    settings = stage["DefaultRouteSettings"]
    assert settings["ThrottlingRateLimit"] == 1000
    assert settings["ThrottlingBurstLimit"] == 2000
    logged = json.loads(stage["AccessLogSettings"]["Format"])
    assert {"requestId", "caller", "route", "status", "latencyMs"} <= set(logged)
    name = plain(stage["AccessLogSettings"]["DestinationArn"])
    assert assembly.resources[f"FairboxApi/{name}"]["DeletionPolicy"] == "RetainExceptOnCreate"
    group = assembly.of_type("AWS::Logs::LogGroup")[f"FairboxApi/{name}"]
    assert group["RetentionInDays"] == 30
    separator, (prefix, unique) = group["LogGroupName"]["Fn::Join"]
    assert (separator, prefix) == ("", "/aws/vendedlogs/apis/FairboxApi-")
    assert unique["Fn::Select"][1]["Fn::Split"] == ["/", {"Ref": "AWS::StackId"}]


def test_polls_of_feeds_have_an_api_apart_with_limits_that_pages_of_every_origin_reach(
    keyed: Assembly,
) -> None:
    apis = keyed.of_type("AWS::ApiGatewayV2::Api").values()
    [cors] = [api["CorsConfiguration"] for api in apis if "CorsConfiguration" in api]
    assert (cors["AllowOrigins"], cors["AllowMethods"]) == (["*"], ["POST"])
    assert cors["AllowHeaders"] == ["authorization", "content-type"]
    assert "AllowCredentials" not in cors
    routes = keyed.of_type("AWS::ApiGatewayV2::Route").values()
    assert [
        (route["RouteKey"], plain(route["ApiId"]))
        for route in routes
        if route["AuthorizationType"] == "NONE" and not route["RouteKey"].startswith("$")
    ] == [("POST /poll", "PollApi")]
    stages = keyed.of_type("AWS::ApiGatewayV2::Stage").values()
    [stage] = [one for one in stages if plain(one["ApiId"]) == "PollApi"]
    assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] == 1000
