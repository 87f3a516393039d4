"""Stack of the feeds: their table, the WebSocket API, and the functions behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_secretsmanager as secretsmanager
from fairbox.tables.keys import EXPIRES_AT

from fairbox_cdk.components import metrics
from fairbox_cdk.components import permissions as may
from fairbox_cdk.components.alarms import alarm_above
from fairbox_cdk.components.function import FairboxFunction
from fairbox_cdk.components.nag import acknowledge
from fairbox_cdk.components.queues import (
    DEAD_LETTER_RETENTION,
    alarm_when_not_empty,
    private_queue,
)
from fairbox_cdk.components.retention import removal_policy
from fairbox_cdk.components.stack import DeploymentStack
from fairbox_cdk.components.tables import paid_by_request
from fairbox_cdk.components.triggers import QueueTrigger, StreamTrigger, grown_head

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_sqs as sqs
    from constructs import Construct

    from fairbox_cdk.components.function import Platform

STAGE: Final = "feeds"
CONNECT_SECONDS: Final = 28
"""Below the 29 s for which the gateway waits."""
POLL_SECONDS: Final = 28
"""20 s of waiting and 7.5 s for the last call; the gateway waits for 30 s."""
VISIT_SECONDS: Final = 40
"""20 s in which posts begin, and the time to end them and to put clients out."""
VISIBILITY_SECONDS: Final = 60
MAXIMUM_RECEIVES: Final = 5
STALE_SECONDS: Final = 600
"""Age of news that is not pushed any more: each client has asked since, in nine minutes."""
_TOKEN_HEADER: Final = "route.request.header.Sec-WebSocket-Protocol"  # noqa: S105 - its name


class FeedsStack(DeploymentStack):
    """Topics for people's screens.

    Attributes:
        table: feeds, topics, connections; streamed.
        tokens: the secret that signs clients' tokens, today's value and the one before.
        url: where clients connect, `wss://...`.
        poll_url: where clients poll whose network blocks WebSockets, `https://.../poll`.
        doorbells: the queue of what is to be pushed.
        authorize, connect, poll, ring, visit: the functions.
    """

    def __init__(
        self, scope: Construct, part: str, *, platform: Platform, key: kms.IKey | None
    ) -> None:
        config = platform.config
        super().__init__(
            scope,
            part,
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
            time_to_live_attribute=EXPIRES_AT,
        )
        self.tokens = self._tokens()
        self.authorize = self._authorize()
        self.connect = self._connect()
        self._websocket_api = self._api()
        self.url = f"{self._websocket_api.api_endpoint}/{STAGE}"
        CfnOutput(self, "Url", value=self.url)
        self.poll = self._poll()
        self.poll_url = f"{self._poll_api().api_endpoint}/poll"
        CfnOutput(self, "PollUrl", value=self.poll_url)
        self.doorbells = self._doorbells(key)
        self.ring = self._ring()
        self.visit = self._visit()
        self._alarm()

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

    def _poll(self) -> FairboxFunction:
        poll = FairboxFunction(
            self,
            "FeedsPoll",
            platform=self._platform,
            name="feeds_poll",
            description="Answers clients of feeds that have no WebSocket.",
            memory_mb=256,  # it waits: a poll that is always held costs $9 a month
            timeout_seconds=POLL_SECONDS,
            environment={
                "FAIRBOX_FEEDS_TABLE": self.table.table_name,
                "FAIRBOX_FEEDS_SECRET": self.tokens.secret_arn,
                "FAIRBOX_HELD_POLLS": str(self._platform.config.held_polls),
            },
        )
        poll.allow(
            [
                may.on_table(self.table, *may.READ_ITEMS, "UpdateItem"),
                may.read_secret(self.tokens),
            ]
        )
        return poll

    def _poll_api(self) -> apigateway.HttpApi:
        """Return an API apart from the one that asks for IAM credentials: browsers have none."""
        config = self._platform.config
        api = apigateway.HttpApi(
            self,
            "PollApi",
            api_name=f"{config.name} feeds poll",
            description="Fairbox: feeds, without a WebSocket",
            create_default_stage=False,
            # a token is no cookie: a foreign origin has none, so it gains nothing
            cors_preflight=apigateway.CorsPreflightOptions(
                allow_origins=["*"],
                allow_methods=[apigateway.CorsHttpMethod.POST],
                allow_headers=["authorization", "content-type"],
                expose_headers=["retry-after"],
                max_age=Duration.hours(2),
            ),
        )
        api.add_routes(
            path="/poll",
            methods=[apigateway.HttpMethod.POST],
            integration=integrations.HttpLambdaIntegration("Poll", self.poll.function),
        )
        stage = apigateway.HttpStage(
            self,
            "PollStage",
            http_api=api,
            stage_name="$default",
            auto_deploy=True,
            throttle=apigateway.ThrottleSettings(
                rate_limit=config.api_rate_limit, burst_limit=config.api_burst_limit
            ),
        )
        reason = "Each client asks every few seconds, and its function logs what fails."
        acknowledge(stage, "AwsSolutions-APIG1", reason)
        reason = "The function checks the token, which is no IAM credential."
        acknowledge(api.node.find_child("POST--poll"), "AwsSolutions-APIG4", reason)
        return api

    def _doorbells(self, key: kms.IKey | None) -> sqs.Queue:
        dead_letters = private_queue(
            self,
            "DoorbellDeadLetters",
            visibility_seconds=VISIBILITY_SECONDS,
            retention=DEAD_LETTER_RETENTION,
            fifo=True,
            key=key,
        )
        alarm_when_not_empty(
            dead_letters,
            f"Doorbells of feeds failed {MAXIMUM_RECEIVES} times.",
            self._platform.alarm_topic,
            "Doorbells given up",
        )
        return private_queue(
            self,
            "Doorbells",
            visibility_seconds=VISIBILITY_SECONDS,
            retention=Duration.seconds(STALE_SECONDS),
            fifo=True,
            dead_letters=dead_letters,
            maximum_receives=MAXIMUM_RECEIVES,
            key=key,
        )

    def _ring(self) -> FairboxFunction:
        ring = FairboxFunction(
            self,
            "FeedsRing",
            platform=self._platform,
            name="feeds_ring",
            description="Rings for the clients of what was published to feeds.",
            memory_mb=512,
            timeout_seconds=30,
            environment={
                "FAIRBOX_FEEDS_TABLE": self.table.table_name,
                "FAIRBOX_FEEDS_QUEUE_URL": self.doorbells.queue_url,
            },
        )
        ring.allow([may.on_table(self.table, "Query"), may.send_to(self.doorbells)])
        StreamTrigger(
            self,
            "RingStream",
            function=ring,
            table=self.table,
            failures=None,
            filters=[grown_head()],
            batch_size=100,
            window_seconds=0,
            parallelization=1,
            retries=-1,
            maximum_age_seconds=STALE_SECONDS,
        )
        return ring

    def _visit(self) -> FairboxFunction:
        shards = self._platform.config.audience_shards
        visit = FairboxFunction(
            self,
            "FeedsVisit",
            platform=self._platform,
            name="feeds_visit",
            description="Sends what was published to feeds to the clients of an audience shard.",
            memory_mb=1769,  # one processor: a post takes 0.6 ms of it
            timeout_seconds=VISIT_SECONDS,
            environment={
                "FAIRBOX_FEEDS_TABLE": self.table.table_name,
                "FAIRBOX_FEEDS_URL": self.url,
                "FAIRBOX_FEEDS_QUEUE_URL": self.doorbells.queue_url,
                "FAIRBOX_AUDIENCE_SHARDS": str(shards),
                "FAIRBOX_PUSH_RATE": str(self._platform.config.push_rate),
            },
        )
        visit.allow(
            [
                may.send_to(self.doorbells),
                may.on_table(self.table, *may.READ_ITEMS, "DeleteItem"),
                may.keep_sockets(self._websocket_api, STAGE),
            ]
        )
        QueueTrigger(
            self,
            "Doorbell",
            function=visit,
            queue=self.doorbells,
            batch_size=10,
            maximum_concurrency=max(2, shards),
        )
        return visit

    def _alarm(self) -> None:
        """Alarm on what reaches clients late, or not."""
        topic = self._platform.alarm_topic
        alarm_above(
            self,
            "FeedDelay",
            metric=metrics.total(metrics.FEED_DELAY),
            threshold=10,
            description="What is published to feeds has reached clients late for five minutes.",
            topic=topic,
            periods=5,
        )
        period = Duration.minutes(5)
        alarm_above(
            self,
            "FeedPutOut",
            metric=cloudwatch.MathExpression(
                expression="100 * out / (out + taken)",
                using_metrics={
                    "out": metrics.summed(metrics.FEED_PUT_OUT, period),
                    "taken": metrics.summed(metrics.FEED_FRAMES, period),
                },
                label="",
                period=period,
            ),
            threshold=5,
            description="Clients of feeds do not take over 5 % of the frames.",
            topic=topic,
            periods=3,
        )

    def _api(self) -> apigateway.WebSocketApi:
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
        return api
