"""The OpenAPI 3.1 document, from the routes and the models that check and answer requests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import models_json_schema

from fairbox.api import (
    batch_models,
    feed_routes,
    field_types,
    models,
    operation_models,
    queue_models,
)
from fairbox.api.openapi_examples import BODIES, EVENT, LINKS, MESSAGE
from fairbox.api.publish_routes import MAX_BATCH
from fairbox.api.request import JSON_TYPE, MAX_BODY_BYTES
from fairbox.cloudevents import BATCH_TYPE, STRUCTURED_TYPE
from fairbox.problems import KINDS, PROBLEM_TYPE, URN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic import BaseModel

    from fairbox.api.route import Route

Schema = dict[str, Any]

_READ: Final = ("throttled", "unavailable", "internal")
_BODY: Final = ("malformed", "too-large", "unsupported-media-type")
_TOPIC: Final = ("unknown-topic", "invalid-field")
_BATCH: Final = ("unknown-batch", "invalid-field")
_FEEDS: Final = ("unknown-route", "invalid-field")
_SETTLE: Final = (*_BODY, "invalid-field", "unknown-items", "batch-ended", "batch-busy")
_HELD: Final = (*_BODY, "invalid-field", "stale-receipt")

_ANSWERS: Final[Mapping[str, tuple[Mapping[int, type[BaseModel] | None], Sequence[str]]]] = {
    "publish_messages": (
        {202: models.Published},
        (*_BODY, *_TOPIC, "conflict", "topic-full", "not-written"),
    ),
    "list_topic_messages": ({200: models.Messages}, _TOPIC),
    "show_one_message": (
        {200: models.MessageOut},
        ("malformed", "unknown-message", "conflict", "invalid-field"),
    ),
    "cancel_message": ({204: None}, ("malformed", "unknown-message", "conflict", "invalid-field")),
    "redrive_dead_letters": (
        {200: operation_models.RedriveOut},
        (*_BODY, "unknown-message", "conflict", *_TOPIC),
    ),
    "list_topics": ({200: models.Topics}, ("invalid-field",)),
    "show_one_topic": ({200: models.TopicOut}, _TOPIC),
    "put_topic": (
        {200: models.TopicOut, 201: models.TopicOut},
        (*_BODY, "conflict", "invalid-field"),
    ),
    "resize_topic": ({202: operation_models.ResizeOut}, (*_BODY, "conflict", *_TOPIC)),
    "list_epochs": ({200: operation_models.Epochs}, _TOPIC),
    "put_subscription": (
        {200: models.SubscriptionOut, 201: models.SubscriptionOut},
        (*_BODY, "conflict", *_TOPIC),
    ),
    "delete_subscription": ({204: None}, ("unknown-subscription", *_TOPIC)),
    "pause_subscription": (
        {200: models.SubscriptionOut},
        (*_BODY, "unknown-subscription", "conflict", *_TOPIC),
    ),
    "resume_subscription": (
        {200: models.SubscriptionOut},
        ("unknown-subscription", "conflict", *_TOPIC),
    ),
    "open_batch": (
        {200: batch_models.BatchOut, 201: batch_models.BatchOut},
        (*_BODY, "conflict", "invalid-field", "unknown-items", "batch-busy"),
    ),
    "list_batches": ({200: batch_models.Batches}, ("invalid-field",)),
    "add_items": (
        {200: batch_models.Groups},
        (*_BODY, *_BATCH, "batch-sealed", "batch-ended", "request-conflict", "batch-busy"),
    ),
    "seal_batch": ({200: batch_models.ProgressOut}, (*_BATCH, "batch-ended", "batch-busy")),
    "show_batch": ({200: batch_models.ShownBatch}, _BATCH),
    "list_missing": ({200: batch_models.Missing}, _BATCH),
    "list_failed": ({200: batch_models.FailedItems}, _BATCH),
    "cancel_batch": ({204: None}, (*_BATCH, "batch-ended", "batch-busy")),
    "ack_items": ({200: batch_models.Settled}, _SETTLE),
    "fail_items": ({200: batch_models.Settled}, _SETTLE),
    "retry_items": ({200: batch_models.Settled}, _SETTLE),
    "receive_messages": (
        {200: queue_models.ReceivedMessages},
        (*_BODY, *_TOPIC, "conflict"),
    ),
    "receive_dead_letters": ({200: queue_models.ReceivedMessages}, (*_BODY, *_TOPIC)),
    "ack_messages": ({200: queue_models.SettledReceipts}, _HELD),
    "nack_messages": ({200: queue_models.SettledReceipts}, _HELD),
    "extend_messages": ({200: queue_models.SettledReceipts}, _HELD),
    "release_messages": ({200: queue_models.SettledReceipts}, _HELD),
    "edit_message": (
        {200: operation_models.EditedOut},
        (*_BODY, "unknown-message", "unknown-topic", "conflict", "invalid-field"),
    ),
    "purge_topic": ({200: operation_models.PurgedOut}, ("conflict", *_TOPIC)),
    "purge_dead_letters": (
        {200: operation_models.PurgedDeadOut},
        ("unknown-message", "conflict", *_TOPIC),
    ),
    "show_queue_stats": ({200: operation_models.QueueStatsOut}, _TOPIC),
    "pause_topic": ({204: None}, ("conflict", *_TOPIC)),
    "resume_topic": ({204: None}, ("conflict", *_TOPIC)),
    "delete_topic": ({202: operation_models.DeletingOut, 204: None}, ("conflict", *_TOPIC)),
    "put_feed": (
        {200: feed_routes.FeedOut, 201: feed_routes.FeedOut},
        (*_BODY, *_FEEDS),
    ),
    "show_feed": ({200: feed_routes.FeedOut}, ("unknown-feed", *_FEEDS)),
    "delete_feed": ({204: None}, ("unknown-feed", *_FEEDS)),
    "show_feed_topic": ({200: feed_routes.FeedTopicOut}, ("unknown-feed", *_FEEDS)),
    "publish_to_feed": (
        {200: feed_routes.NumberOut},
        (*_BODY, "unknown-feed", "feed-full", *_FEEDS),
    ),
    "make_feed_token": (
        {200: feed_routes.TokenOut},
        (*_BODY, "unknown-route", "invalid-field"),
    ),
    "show_stats": ({200: models.Stats}, ("invalid-field",)),
    "show_openapi": ({200: None}, ("invalid-field",)),
}
"""By operation: the model of each good answer, and the kinds of problem beside `_READ`."""

_BODIES: Final[Mapping[str, tuple[type[BaseModel], bool]]] = {
    "put_topic": (models.TopicIn, False),
    "resize_topic": (operation_models.ResizeIn, True),
    "put_subscription": (models.SubscriptionIn, True),
    "pause_subscription": (models.PauseIn, False),
    "open_batch": (batch_models.BatchIn, False),
    "add_items": (batch_models.AddIn, True),
    "ack_items": (batch_models.ItemsIn, True),
    "fail_items": (batch_models.FailsIn, True),
    "retry_items": (batch_models.ItemsIn, True),
    "redrive_dead_letters": (operation_models.RedriveIn, True),
    "receive_messages": (queue_models.ReceiveIn, False),
    "receive_dead_letters": (queue_models.ReceiveDeadIn, False),
    "ack_messages": (queue_models.AcksIn, True),
    "nack_messages": (queue_models.NacksIn, True),
    "extend_messages": (queue_models.ExtensionsIn, True),
    "release_messages": (queue_models.ReleasesIn, True),
    "edit_message": (operation_models.EditIn, True),
    "put_feed": (feed_routes.FeedIn, False),
    "publish_to_feed": (feed_routes.FeedMessageIn, True),
    "make_feed_token": (feed_routes.TokenIn, True),
}
"""By operation: the model of its JSON body, and whether there must be one."""

_MEANS: Final = {
    200: "As it is, or was made.",
    201: "It was not there before.",
    202: "Taken: a message is delivered at least once, a width holds from its time on.",
    204: "Done; no body.",
}
_PARAMS: Final = {
    "topic": "A topic's name: 1 to 120 letters, digits, `.`, `_`, `-`; a letter or digit first.",
    "name": "A subscription's name: 1 to 64 letters, digits, `.`, `_`, `-`; a letter or digit"
    " first.",
    "id": "A batch's id.",
    "feed": "A feed's name, as of a topic.",
    "key": "A topic's name in its feed: 1 to 256 bytes, not `*`; escaped.",
    "ref": "`topic/epoch/shard/id`, and `/due` of a delayed message; slashes as they are, or"
    " escaped.",
}
_PATH: Final[Mapping[str, Schema]] = {
    "topic": field_types.TOPIC,
    "name": field_types.SUBSCRIPTION,
    "id": field_types.BATCH,
    "feed": field_types.TOPIC,
    "key": field_types.TEXT | {"type": "string", "minLength": 1, "not": {"const": "*"}},
    "ref": field_types.REF,
}
_LOCATION: Final[Schema] = {
    "Location": {"description": "The batch's path.", "schema": {"type": "string"}}
}
_HEADERS: Final = {
    405: ("Allow", "The methods that the route takes."),
    429: ("Retry-After", "Seconds."),
    503: ("Retry-After", "Seconds."),
}
_GATEWAY: Final[Mapping[int, str]] = {
    403: "The gateway: the request is not signed, or its signer may not do this.",
    413: "The gateway: the body is larger than it takes.",
    429: "The gateway: too many requests.",
    500: "The gateway: the function failed.",
    503: "The gateway: the function took too long.",
}
"""Answers that the gateway gives in place of the function, in another media type than a problem."""
_EVENT: Final[Schema] = {
    "type": "object",
    "description": "A CloudEvent 1.0 in its JSON format.",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": field_types.ATTRIBUTE,
        "source": {"type": "string", "minLength": 1, "format": "uri-reference"},
        "type": field_types.ATTRIBUTE,
        "time": {"type": "string", "format": "date-time"},
        "subject": field_types.ATTRIBUTE,
        "datacontenttype": {"type": "string", "maxLength": 255, "pattern": field_types.MEDIA_TYPE},
        "dataschema": {"type": "string", "format": "uri"},
        "partitionkey": field_types.ATTRIBUTE | {"maxLength": 256, "description": "256 bytes."},
        "batchitem": {
            "type": "string",
            "pattern": field_types.ITEM,
            "description": "`batch:group:index`.",
        },
        "data": {"description": "Any JSON value; stored as it was written."},
        "data_base64": {
            "type": "string",
            "contentEncoding": "base64",
            "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
        },
    },
    "propertyNames": {"pattern": "^([a-z0-9]{1,64}|data_base64)$"},
    "additionalProperties": {
        "description": "An extension.",
        "anyOf": [
            field_types.ATTRIBUTE,
            {"type": "boolean"},
            {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
        ],
    },
    "not": {"required": ["data", "data_base64"]},
}


def openapi(routes: Iterable[Route]) -> Schema:
    """Return the document."""
    paths: dict[str, Schema] = {}
    for route in routes:
        # OpenAPI has no sign for a parameter that takes slashes
        path = route.path.replace("+}", "}")
        paths.setdefault(path, {})[route.method.lower()] = _operation(route)

    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fairbox",
            "version": "1",
            "description": "A sharded transactional outbox on DynamoDB. Requests are signed (AWS"
            f" Signature 4). A body has at most {MAX_BODY_BYTES:,} bytes. Unknown fields and"
            " parameters are refused. Nothing is half done after a refusal.",
        },
        "security": [{"sigv4": []}],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "sigv4": {
                    "type": "apiKey",
                    "name": "Authorization",
                    "in": "header",
                    "description": "AWS Signature Version 4, service `execute-api`.",
                    "x-amazon-apigateway-authtype": "awsSigv4",
                }
            },
        },
    }


def _schemas() -> Schema:
    used: dict[str, type[BaseModel]] = {"MessageIn": models.MessageIn}
    used |= {model.__name__: model for model, _ in _BODIES.values()}
    used |= {"ProblemOut": models.ProblemOut, "GatewayOut": models.GatewayOut}
    for answers, _ in _ANSWERS.values():
        used |= {model.__name__: model for model in answers.values() if model is not None}

    # answers name all of their fields in this mode
    _, schemas = models_json_schema(
        [(m, "validation" if n.endswith("In") else "serialization") for n, m in used.items()],
        ref_template="#/components/schemas/{model}",
    )

    return dict(sorted((schemas["$defs"] | {"CloudEvent": _EVENT}).items()))


def _operation(route: Route) -> Schema:
    name = route.endpoint.__name__
    good, kinds = _ANSWERS[name]
    answers = {str(status): _good(status, model) for status, model in good.items()}
    answers |= _problems((*kinds, *_READ))
    _add_gateway(answers)

    operation: Schema = {
        "operationId": name,
        "summary": (route.endpoint.__doc__ or "").partition("\n")[0],
        "parameters": _parameters(route),
        "responses": dict(sorted(answers.items())),
    }

    for status, links in LINKS.get(name, {}).items():
        operation["responses"][str(status)]["links"] = links
    if name == "delete_topic":
        waiting = "It is being deleted: ask again when this time is over."
        operation["responses"]["202"] |= {"description": waiting, "headers": _header(503)}
    if name == "open_batch":
        for status in good:
            operation["responses"][str(status)]["headers"] = _LOCATION

    body = _request_body(name)
    return operation | ({"requestBody": body} if body else {})


def _parameters(route: Route) -> list[Schema]:
    found: list[Schema] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PARAMS[name],
            "schema": _PATH[name],
        }
        for name in re.findall(r"\{(\w+)\+?\}", route.path)
    ]

    for name, schema in route.query.model_json_schema().get("properties", {}).items():
        plain = _plain(schema)
        description = plain.pop("description", None)
        found.append(
            {"name": name, "in": "query", "required": False, "schema": plain}
            | ({"description": description} if description else {})
        )
    return found


def _plain(schema: Schema) -> Schema:
    """Return a parameter's schema without null, which a query cannot say."""
    plain = {k: v for k, v in schema.items() if k not in ("title", "anyOf")}
    for choice in schema.get("anyOf", ()):
        if choice != {"type": "null"}:
            plain |= choice
    if plain.get("default", "") is None:
        del plain["default"]
    return plain


def _good(status: int, model: type[BaseModel] | None) -> Schema:
    answer: Schema = {"description": _MEANS[status]}
    if model is not None:
        answer["content"] = {JSON_TYPE: {"schema": _ref(model.__name__)}}
    # the document itself, whose schema nobody needs
    elif status == 200:
        answer["content"] = {JSON_TYPE: {"schema": {"type": "object"}}}
    return answer


def _problems(kinds: Sequence[str]) -> Schema:
    by_status: dict[int, list[str]] = {}
    for kind in kinds:
        by_status.setdefault(KINDS[kind][0], []).append(kind)

    answers: Schema = {}
    for status, names in sorted(by_status.items()):
        description = "; ".join(f"`{URN}{name}`: {KINDS[name][1]}" for name in names)
        answers[str(status)] = {
            "description": f"{description}.",
            "content": {PROBLEM_TYPE: {"schema": _ref("ProblemOut")}},
        }
        if status in _HEADERS:
            answers[str(status)]["headers"] = _header(status)
    return answers


def _header(status: int) -> Schema:
    name, description = _HEADERS[status]
    return {name: {"description": description, "schema": {"type": "string"}}}


def _add_gateway(answers: Schema) -> None:
    for status, description in _GATEWAY.items():
        if status != 403 and str(status) not in answers:
            continue
        answer = answers.setdefault(str(status), {"content": {}})
        answer["description"] = " ".join(filter(None, (answer.get("description"), description)))
        answer["content"][JSON_TYPE] = {"schema": _ref("GatewayOut")}


def _request_body(name: str) -> Schema | None:
    if name in _BODIES:
        model, required = _BODIES[name]
        content = {"schema": _ref(model.__name__), "example": BODIES[name]}
        return {"required": required, "content": {JSON_TYPE: content}}

    if name != "publish_messages":
        return None
    events = {"type": "array", "items": _ref("CloudEvent"), "maxItems": MAX_BATCH}
    return {
        "required": False,
        "description": "A message as JSON, a CloudEvent in structured mode, a batch of them, or any"
        " bytes with the attributes of a CloudEvent in headers `ce-...` (binary mode).",
        "content": {
            JSON_TYPE: {"schema": _ref("MessageIn"), "example": MESSAGE},
            STRUCTURED_TYPE: {"schema": _ref("CloudEvent"), "example": EVENT},
            BATCH_TYPE: {"schema": events, "example": [EVENT]},
            "*/*": {"schema": {}},
        },
    }


def _ref(model: str) -> Schema:
    return {"$ref": f"#/components/schemas/{model}"}
