"""Stack of the feeds: their table, the WebSocket API, and the functions behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_secretsmanager as secretsmanager
from fairbox import codec

from stacks.components import permissions as may
from stacks.components.function import FairboxFunction, removal_policy
from stacks.components.nag import acknowledge
from stacks.components.tables import paid_by_request

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from constructs import Construct

    from stacks.components.function import Platform

STAGE: Final = "feeds"
CONNECT_SECONDS: Final = 28
"""Below the 29 s for which the gateway waits."""
_TOKEN_HEADER: Final = "route.request.header.Sec-WebSocket-Protocol"  # noqa: S105 - its name


class FeedsStack(Stack):
    """Topics for people's screens.

    Attributes:
        table: feeds, topics, connections; streamed.
        tokens: the secret that signs clients' tokens, today's value and the one before.
        url: where clients connect, `wss://...`.
        authorize, connect: the functions.
    """

    def __init__(
        self, scope: Construct, id_: str, *, platform: Platform, key: kms.IKey | None
    ) -> None:
        config = platform.config
        super().__init__(
            scope,
            id_,
            description="Fairbox: feeds.",
            termination_protection=config.keeps_data,
        )
        self._platform = platform
        self.table = paid_by_request(
            self,
            "Feeds",
            config=config,
            key=key,
            stream=dynamodb.StreamViewType.NEW_IMAGE,
            time_to_live_attribute=codec.EXPIRES_AT,
        )
        self.tokens = self._tokens()
        self.authorize = self._authorize()
        self.connect = self._connect()
        self.url = self._api()

    def _tokens(self) -> secretsmanager.Secret:
        secret = secretsmanager.Secret(
            self,
            "Tokens",
            description="Fairbox: signs the tokens of feeds' clients.",
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=64, exclude_punctuation=True
            ),
            removal_policy=removal_policy(self._platform.config),
        )
        reason = "A new value is put by hand: no function may write it, and two are valid."
        acknowledge(secret, "AwsSolutions-SMG4", reason)
        return secret

    def _authorize(self) -> FairboxFunction:
        authorize = FairboxFunction(
            self,
            "FeedsAuthorize",
            platform=self._platform,
            name="feeds_authorize",
            description="Checks the token of a feeds' client.",
            memory_mb=512,
            timeout_seconds=15,
            environment={"FAIRBOX_FEEDS_SECRET": self.tokens.secret_arn},
        )
        authorize.allow([may.read_secret(self.tokens)])
        return authorize

    def _connect(self) -> FairboxFunction:
        connect = FairboxFunction(
            self,
            "FeedsConnect",
            platform=self._platform,
            name="feeds_connect",
            description="Keeps the connections of feeds' clients, and answers what they ask.",
            memory_mb=1024,
            timeout_seconds=CONNECT_SECONDS,
            environment={
                "FAIRBOX_FEEDS_TABLE": self.table.table_name,
                "FAIRBOX_AUDIENCE_SHARDS": str(self._platform.config.audience_shards),
            },
        )
        connect.allow([may.on_table(self.table, *may.READ_ITEMS, *may.WRITE_ITEMS)])
        return connect

    def _api(self) -> str:
        """Make the API; return its URL."""
        integration = integrations.WebSocketLambdaIntegration("Connect", self.connect.function)
        api = apigateway.WebSocketApi(
            self,
            "WebSocketApi",
            api_name=f"{self._platform.config.name} feeds",
            description="Fairbox: feeds",
            route_selection_expression="$request.body.op",
            connect_route_options=apigateway.WebSocketRouteOptions(
                integration=integration,
                authorizer=authorizers.WebSocketLambdaAuthorizer(
                    "Token", self.authorize.function, identity_source=[_TOKEN_HEADER]
                ),
            ),
            disconnect_route_options=apigateway.WebSocketRouteOptions(integration=integration),
            # one function answers all that clients say; its result is sent back to them
            default_route_options=apigateway.WebSocketRouteOptions(
                integration=integration, return_response=True
            ),
        )
        stage = apigateway.WebSocketStage(
            self, "Stage", web_socket_api=api, stage_name=STAGE, auto_deploy=True
        )
        reason = "They need a role that is set for the whole account; the metrics need none."
        acknowledge(stage, "AwsSolutions-APIG1", reason)
        reason = "Only $connect has an authorizer: what follows is on the same connection."
        for route in ("$disconnect-Route", "$default-Route"):
            acknowledge(api.node.find_child(route), "AwsSolutions-APIG4", reason)
        return f"{api.api_endpoint}/{STAGE}"
