"""Bases of the models at the edge: what comes in, what the query says, what goes out."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _whole(value: object) -> object:
    """Return a whole number that was written with a fraction of nought as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE: Final = BeforeValidator(_whole)
"""To JSON Schema 16.0 is an integer, and some clients write it so.

It stands behind the bounds of a number that may be null: before them they are lost to the schema.
"""
Whole = Annotated[int, WHOLE]
Milliseconds = Annotated[int, Field(description="Milliseconds since 1970 UTC.")]


class In(BaseModel):
    """A request's model: refuses unknown fields, converts nothing, is built when first used."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class Query(BaseModel):
    """Parameters of the query: text, converted."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class Out(BaseModel):
    """An answer's model."""

    model_config = ConfigDict(defer_build=True)
