"""Bases of the models at the edge: what comes in, what the query says, what goes out."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Milliseconds = Annotated[int, Field(description="Milliseconds since 1970 UTC.")]


class In(BaseModel):
    """What comes in: nothing unknown, nothing converted. Built when it is first used."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class Query(BaseModel):
    """Parameters of the query: text, converted."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class Out(BaseModel):
    """What goes out."""

    model_config = ConfigDict(defer_build=True)
