"""A client of feeds, as API Gateway passes it on to the functions."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairbox.aws.token_keys import SecretKeys
from fairbox.feeds.tokens import make_token

from tests.functions.running import Context
from tests.support.deployment import variable

if TYPE_CHECKING:
    from types import ModuleType

    from tests.functions.running import Functions

ARN = "arn:aws:execute-api:us-east-1:123456789012:abc/feeds/$connect"


@dataclass
class FeedsClient:
    """One connection, which meets the same processes each time."""

    functions: Functions
    id: str = "c1="
    _warm: dict[str, ModuleType] = field(default_factory=dict)
    _sequence: str | None = None

    def keys(self) -> SecretKeys:
        client = self.functions.clients["secretsmanager"]
        return SecretKeys(lambda: client, variable("FAIRBOX_FEEDS_SECRET"), self.functions.clock)

    def token(self, user: str, *allow: str, ttl: int = 60) -> str:
        return make_token(self.keys(), user, allow, ttl, self.functions.clock.now())

    def authorize(self, *offered: str) -> dict[str, Any] | None:
        """Return the authorizer's context; None: it denies."""
        headers = {"Sec-WebSocket-Protocol": ", ".join(offered)}
        event = {"type": "REQUEST", "methodArn": ARN, "headers": headers}
        answer = self._invoke("feeds_authorize", event)
        [statement] = answer["policyDocument"]["Statement"]
        assert statement["Resource"] == ARN
        return answer["context"] if statement["Effect"] == "Allow" else None

    def connect(self, user: str, *allow: str) -> Any:
        context = self.authorize("fairbox.v1", f"token.{self.token(user, *allow)}")
        assert context is not None
        return self._event("$connect", authorizer=context)

    def say(self, **request: Any) -> Any:
        return json.loads(self._event("$default", body=json.dumps(request))["body"])

    def poll(self, token: str, topics: dict[str, int | None], wait: int = 0) -> Any:
        body = json.dumps({"op": "sync", "id": 1, "topics": topics, "wait": wait}).encode()
        event = {
            "requestContext": {"requestId": self.id},
            "headers": {"authorization": f"Bearer {token}"},
            "body": base64.b64encode(body).decode(),
            "isBase64Encoded": True,
        }
        return self._invoke("feeds_poll", event)

    def disconnect(self) -> None:
        self._event("$disconnect")

    def push(self, age: float = 0) -> list[dict[str, str]]:
        """Ring for what was published since, and visit so much later; return what comes again."""
        functions, url = self.functions, variable("FAIRBOX_FEEDS_QUEUE_URL")
        records = functions.engine.stream(functions.tables["feeds"]).take(self._sequence)
        heads = [r for r in records if r["dynamodb"]["Keys"]["sk"]["S"] == "!"]
        if heads:
            self._sequence = records[-1]["dynamodb"]["SequenceNumber"]
            self._invoke("feeds_ring", {"Records": heads})
        doorbells = [
            {
                "messageId": entry["Id"],
                "body": entry["MessageBody"],
                "attributes": {
                    "MessageGroupId": entry["MessageGroupId"],
                    "ApproximateReceiveCount": "1",
                    "SentTimestamp": str(round((functions.clock.now() - age) * 1000)),
                },
            }
            for entry in functions.sqs.sent.pop(url, [])
        ]
        failed: list[dict[str, str]] = self._invoke("feeds_visit", {"Records": doorbells})[
            "batchItemFailures"
        ]
        return failed

    def _event(self, route: str, body: str | None = None, **more: Any) -> Any:
        context = {"routeKey": route, "connectionId": self.id} | more
        event = {"requestContext": context} | ({} if body is None else {"body": body})
        return self._invoke("feeds_connect", event)

    def _invoke(self, name: str, event: dict[str, Any]) -> Any:
        if name not in self._warm:
            self._warm[name] = self.functions.load(name)
        return self._warm[name].handler(event, Context.of(name))
