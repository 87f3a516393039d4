"""Stack of the HTTP API: routes, IAM authorisation, access logs, throttling, one function."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from aws_cdk import CfnOutput
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from fairbox.tables import batch_records as batch_codec
from fairbox.tables.ledger import DELIVERED_INDEX
from fairbox.tables.shard_rows import OUTSTANDING_INDEX

from fairbox_cdk.components import permissions as may
from fairbox_cdk.components.function import FairboxFunction
from fairbox_cdk.components.log_groups import vended_log_group
from fairbox_cdk.components.stack import DeploymentStack

if TYPE_CHECKING:
    from constructs import Construct

    from fairbox_cdk.components.doorbells import Doorbells
    from fairbox_cdk.components.function import Platform
    from fairbox_cdk.feeds import FeedsStack
    from fairbox_cdk.storage import StorageStack

ROUTES: Final = (
    ("POST", "/topics/{topic}/messages"),
    ("GET", "/topics/{topic}/messages"),
    ("POST", "/topics/{topic}/redrive"),
    ("GET", "/messages/{ref+}"),
    ("DELETE", "/messages/{ref+}"),
    ("GET", "/topics"),
    ("GET", "/topics/{topic}"),
    ("PUT", "/topics/{topic}"),
    ("POST", "/topics/{topic}/resize"),
    ("GET", "/topics/{topic}/epochs"),
    ("PUT", "/topics/{topic}/subscriptions/{name}"),
    ("DELETE", "/topics/{topic}/subscriptions/{name}"),
    ("PUT", "/topics/{topic}/subscriptions/{name}/pause"),
    ("DELETE", "/topics/{topic}/subscriptions/{name}/pause"),
    ("POST", "/batches"),
    ("GET", "/batches"),
    ("POST", "/batches/acks"),
    ("POST", "/batches/fails"),
    ("POST", "/batches/retries"),
    ("GET", "/batches/{id}"),
    ("DELETE", "/batches/{id}"),
    ("POST", "/batches/{id}/items"),
    ("POST", "/batches/{id}/seal"),
    ("GET", "/batches/{id}/missing"),
    ("GET", "/batches/{id}/failed"),
    ("POST", "/topics/{topic}/receive"),
    ("POST", "/topics/{topic}/receive-dead"),
    ("POST", "/acks"),
    ("POST", "/nacks"),
    ("POST", "/extensions"),
    ("POST", "/releases"),
    ("PATCH", "/messages/{ref+}"),
    ("DELETE", "/topics/{topic}/messages"),
    ("DELETE", "/topics/{topic}/dead"),
    ("GET", "/topics/{topic}/stats"),
    ("POST", "/topics/{topic}/pause"),
    ("POST", "/topics/{topic}/resume"),
    ("DELETE", "/topics/{topic}"),
    ("PUT", "/feeds/{feed}"),
    ("GET", "/feeds/{feed}"),
    ("DELETE", "/feeds/{feed}"),
    ("GET", "/feeds/{feed}/{key+}"),
    ("POST", "/feeds/{feed}/{key+}"),
    ("POST", "/feed-tokens"),
    ("GET", "/stats"),
    ("GET", "/openapi.json"),
)
"""Return method and path of each route; refs and keys may have slashes, so both are greedy."""

API_SECONDS: Final = 28
"""Below the 30 s for which the gateway waits: a cold start comes before, and is not counted."""
_ACCESS_LOG: Final = {
    "requestId": "$context.requestId",
    "time": "$context.requestTimeEpoch",
    "caller": "$context.identity.userArn",
    "ip": "$context.identity.sourceIp",
    "userAgent": "$context.identity.userAgent",
    "method": "$context.httpMethod",
    "route": "$context.routeKey",
    "path": "$context.path",
    "protocol": "$context.protocol",
    "status": "$context.status",
    "responseLength": "$context.responseLength",
    "latencyMs": "$context.responseLatency",
    "integrationLatencyMs": "$context.integrationLatency",
    "error": "$context.error.message",
    "integrationError": "$context.integrationErrorMessage",
}


class ApiStack(DeploymentStack):
    """The HTTP API.

    Attributes:
        http_api: the API; every route asks for IAM credentials.
        api: its function.
    """

    def __init__(
        self,
        scope: Construct,
        part: str,
        *,
        platform: Platform,
        storage: StorageStack,
        doorbells: Doorbells,
        feeds: FeedsStack | None,
    ) -> None:
        super().__init__(scope, part, description="Fairbox: the HTTP API.")
        self.api = self._function(platform, storage, doorbells, feeds)
        integration = integrations.HttpLambdaIntegration(
            "Integration", self.api.function, scope_permission_to_route=False
        )
        self.http_api = apigateway.HttpApi(
            self,
            "HttpApi",
            api_name=platform.config.name,
            description="Fairbox",
            create_default_stage=False,
            default_authorizer=authorizers.HttpIamAuthorizer(),
            # the function tells 404 from 405, as problem details
            default_integration=integration,
        )
        for method, path in ROUTES:
            self.http_api.add_routes(
                path=path, methods=[apigateway.HttpMethod(method)], integration=integration
            )
        self._stage(platform)
        CfnOutput(self, "Url", value=self.http_api.api_endpoint)

    def _stage(self, platform: Platform) -> None:
        config = platform.config
        log_group = vended_log_group(self, "VendedLogs", config=config, service="apis")
        stage = apigateway.HttpStage(
            self,
            "Stage",
            http_api=self.http_api,
            stage_name="$default",
            auto_deploy=True,
            throttle=apigateway.ThrottleSettings(
                rate_limit=config.api_rate_limit, burst_limit=config.api_burst_limit
            ),
        )
        settings = stage.node.default_child
        if not isinstance(settings, apigateway.CfnStage):
            raise TypeError("the stage has no CloudFormation resource")
        settings.access_log_settings = apigateway.CfnStage.AccessLogSettingsProperty(
            destination_arn=log_group.log_group_arn, format=json.dumps(_ACCESS_LOG)
        )

    def _function(
        self,
        platform: Platform,
        storage: StorageStack,
        doorbells: Doorbells,
        feeds: FeedsStack | None,
    ) -> FairboxFunction:
        tokens = {}
        if feeds is not None:
            tokens["FAIRBOX_FEEDS_TABLE"] = feeds.table.table_name
            tokens["FAIRBOX_FEEDS_SECRET"] = feeds.tokens.secret_arn
        api = FairboxFunction(
            self,
            "Api",
            platform=platform,
            name="api",
            description="Answers the HTTP API.",
            memory_mb=512,
            timeout_seconds=API_SECONDS,
            environment={
                "FAIRBOX_BODIES_BUCKET": storage.bodies.bucket_name,
                "FAIRBOX_DOORBELL_QUEUE_URL": doorbells.now.queue_url,
                "FAIRBOX_LATER_QUEUE_URL": doorbells.later.queue_url,
                "FAIRBOX_BATCHES_TABLE": storage.batches.table_name,
                **tokens,
            },
        )
        api.allow(
            [
                may.on_table(
                    storage.outbox,
                    *may.READ_ITEMS,
                    *may.WRITE_ITEMS,
                    *may.ADD_ITEMS,
                    *may.CLAIM_ITEMS,
                    "ConditionCheckItem",
                ),
                may.on_index(storage.outbox, OUTSTANDING_INDEX),
                may.on_table(
                    storage.deliveries,
                    *may.READ_ITEMS,
                    *("PutItem", "UpdateItem", "DeleteItem", *may.ADD_ITEMS),
                ),
                may.on_index(storage.deliveries, DELIVERED_INDEX),
                # each write is a whole item under a condition; a cancelled batch is erased
                may.on_table(
                    storage.batches,
                    *may.READ_ITEMS,
                    *("PutItem", "ConditionCheckItem", "BatchWriteItem"),
                ),
                may.on_index(storage.batches, batch_codec.OPEN_BATCHES_INDEX),
                may.on_objects(storage.bodies, "GetObject", "PutObject", "PutObjectTagging"),
                may.list_bucket(storage.bodies),
                may.send_to(doorbells.now, doorbells.later),
            ]
        )
        if feeds is not None:
            api.allow(
                [
                    may.read_secret(feeds.tokens),
                    may.on_table(feeds.table, *may.PUBLISH_ITEMS, "DeleteItem"),
                ]
            )
        return api
