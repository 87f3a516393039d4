"""The page: parts with charts and tables in one HTML file without network requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TEMPLATE: Final = "page.html"


@dataclass(frozen=True, slots=True)
class Headline:
    """One figure at the top; `mood` is `good`, `bad` or nothing."""

    name: str
    value: str
    mood: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; `numbers` are the columns that are set to the right."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Part:
    """One question and its answer.

    Attributes:
        title, about: the question, and how the answer is to be read.
        svg: the chart; its texts are escaped already.
        table: the figures behind it.
        nothing: text if there is neither.
        wide: over the whole width.
    """

    title: str
    about: str
    svg: str = ""
    table: Table | None = None
    nothing: str = "Nothing to show."
    wide: bool = field(default=False)

    @property
    def chart(self) -> Markup:
        """The chart's markup."""
        return Markup(self.svg)  # noqa: S704 - made by `charts`, which escapes every text


def render(
    verdict: str,
    about: str,
    advice: Sequence[Mapping[str, Any]],
    headline: Sequence[Headline],
    parts: Sequence[Part],
) -> str:
    """Return the page; every text but the charts' markup is escaped.

    Args:
        verdict: one sentence that says whether all is well.
        about: what time the page is about.
        advice: rows of job `advise`.
        headline: figures.
        parts: the charts and tables.
    """
    template = (files(__package__) / TEMPLATE).read_text("utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(template).render(
        verdict=verdict, about=about, advice=advice, headline=headline, parts=parts
    )
