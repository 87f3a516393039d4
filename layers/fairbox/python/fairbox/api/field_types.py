"""Types of fields, bases of the models at the edge, and patterns of texts for the OpenAPI document.

The library's own model checks the texts. JSON Schema counts characters where limits count bytes: a
text of at most n bytes has at most n characters, and one of n characters may still be refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fairbox.model.messages import MAX_HEADERS, MAX_KEY_BYTES
from fairbox.model.topics import MAX_TENANT_WEIGHTS, MAX_WEIGHT, MIN_WEIGHT, SCHEMES

_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_UUID7: Final = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_NAME: Final = "[A-Za-z0-9][A-Za-z0-9._-]"
_WHOLE: Final = "(0|[1-9][0-9]{0,14})"
_NO_CONTROL: Final = "^[^\\u0000-\\u001f\\u007f]*$"

ITEM: Final = f"^{_UUID}:(0|[1-9][0-9]{{0,8}}):(0|[1-9][0-9]{{0,4}})$"
MEDIA_TYPE: Final = (
    "^[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+( *;[\\u0020-\\u007e]*)?$"
)
ATTRIBUTE: Final[dict[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f\\ufdd0-\\ufdef\\ufffe\\uffff]*$",
}
TOPIC: Final[dict[str, Any]] = {"type": "string", "pattern": f"^{_NAME}{{0,119}}$"}
SUBSCRIPTION: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": f"^{_NAME}{{0,63}}$",
    "not": {"const": "pull"},
}
BATCH: Final[dict[str, Any]] = {"type": "string", "pattern": f"^{_UUID}$"}
REF: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": f"^{_NAME}{{0,119}}/{_WHOLE}/{_WHOLE}/{_UUID7}(/{_WHOLE})?$",
}
GRANT: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": f"^{_NAME}{{0,119}}/[^\\u0000-\\u001f\\u007f]{{1,{MAX_KEY_BYTES}}}$",
}
TEXT: Final[dict[str, Any]] = {"maxLength": MAX_KEY_BYTES, "pattern": _NO_CONTROL}
DESTINATION: Final[dict[str, Any]] = {
    "maxLength": 2048,
    "pattern": f"^({'|'.join(SCHEMES)}):[^\\u0000-\\u001f\\u007f]+$",
}
CALLBACK: Final[dict[str, Any]] = {
    "maxLength": 2048,
    "pattern": f"^({_NAME}{{0,119}}|({'|'.join(SCHEMES)}):[^\\u0000-\\u001f\\u007f]+)$",
}
CONTENT_TYPE: Final[dict[str, Any]] = {"pattern": "^[\\u0021-\\u007e][\\u0020-\\u007e]{0,254}$"}
HEADERS: Final[dict[str, Any]] = {
    "maxProperties": MAX_HEADERS,
    "propertyNames": {"pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"},
    "additionalProperties": {
        "type": "string",
        "pattern": "^[^\\u0000-\\u0008\\u000a-\\u001f\\u007f]*$",
    },
}
TENANT_WEIGHTS: Final[dict[str, Any]] = {
    "maxProperties": MAX_TENANT_WEIGHTS,
    "propertyNames": TEXT | {"minLength": 1},
    "additionalProperties": {"type": "number", "minimum": MIN_WEIGHT, "maximum": MAX_WEIGHT},
}
TIME: Final[dict[str, Any]] = {
    "pattern": "^([0-9]{1,14}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,6})?"
    "(Z|[+-][0-9]{2}:[0-9]{2}))$"
}


def _whole(value: object) -> object:
    """Return a whole number that was written with a fraction of nought as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE: Final = BeforeValidator(_whole)
"""To JSON Schema 16.0 is an integer, and some clients write it so.

It stands behind the bounds of a number that may be null: before them they are lost to the schema.
"""
Whole = Annotated[int, WHOLE]
Milliseconds = Annotated[int, Field(description="Milliseconds since 1970 UTC.")]
Text = Annotated[str, Field(json_schema_extra=TEXT)]
MessageId = Annotated[str, Field(json_schema_extra={"pattern": f"^{_UUID7}$"})]
BatchId = Annotated[str, Field(json_schema_extra={"pattern": BATCH["pattern"]})]
Item = Annotated[str, Field(json_schema_extra={"pattern": ITEM})]
ContentType = Annotated[str, Field(json_schema_extra=CONTENT_TYPE)]
Headers = Annotated[dict[str, str], Field(json_schema_extra=HEADERS)]
Time = Annotated[str, Field(max_length=40, json_schema_extra=TIME)]
Receipt = Annotated[
    str,
    Field(
        description="As `receive` gave it.",
        json_schema_extra={"pattern": "^[A-Za-z0-9_-]{1,512}$"},
    ),
]
Callback = Annotated[str | None, Field(json_schema_extra=CALLBACK)]
Encoding = Literal["utf-8", "base64"]
BodyEncoding = Annotated[
    Encoding | None, Field(description="How a text body is to be read; `utf-8` unless it is given.")
]
Cursor = Annotated[str | None, Field(max_length=2000, description="That of the page before.")]


class In(BaseModel):
    """A request's model: refuses unknown fields, converts nothing, is built when first used."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class Query(BaseModel):
    """Parameters of the query: text, converted."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class Out(BaseModel):
    """An answer's model."""

    model_config = ConfigDict(defer_build=True)

    @classmethod
    def of(cls, value: object, **others: Any) -> Self:
        """Return the answer with a value's attributes of the fields' names, and `others`."""
        names = cls.model_fields.keys() - others.keys()
        return cls(**{name: getattr(value, name) for name in names}, **others)
