"""Values of attributes at random: every type, its edges, and now and then what is refused."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

Value = dict[str, Any]

NUMBERS = (
    "0", "1", "-1", "2", "7", "7.0", "10", "12.50", "-0.5", "1e3", "007", "+3", ".5",
    "9" * 38, "-" + "9" * 38, "1" + "0" * 37, "0." + "1" * 38, "1E125", "-1E125", "1E-130",
    "9." + "9" * 37 + "E125", "1.5e-7", "100000000000000000000", "-0", "0.10",
)  # fmt: skip
BAD_NUMBERS = ("", "one", "1" * 39, "1E126", "1E-131", "1e", "--1", "NaN", " 1", "0x1", "1_0")
TEXTS = ("a", "b", "ab", "abc", "1", "ünï", "\U0001f600", "", "B", "x" * 300, "S", "NULL")
BYTES = (b"a", b"b", b"ab", b"\x00\xff", b"", b"abc", b"x" * 300, b"\xff")


def _kinds(nested: bool) -> dict[str, st.SearchStrategy[Any]]:
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "S": st.sampled_from(TEXTS),
        "N": st.sampled_from(NUMBERS),
        "B": st.sampled_from(BYTES),
        "BOOL": st.booleans(),
        "NULL": st.just(value=True),
        "SS": st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3, unique=True),
        "NS": st.lists(st.sampled_from(NUMBERS[:9]), min_size=1, max_size=3, unique_by=float),
        "BS": st.lists(st.sampled_from(BYTES), min_size=1, max_size=3, unique=True),
    }
    if nested:
        inner = value_of(nested=False)
        scalars["L"] = st.lists(inner, max_size=3)
        scalars["M"] = st.dictionaries(
            st.sampled_from(["a", "b", "status", "l"]), inner, max_size=3
        )
    return scalars


@cache
def value_of(*kinds: str, nested: bool = True) -> st.SearchStrategy[Value]:
    """Return attribute values of these kinds; of all without any."""
    of = _kinds(nested)
    return st.one_of(*(_typed(kind, of[kind]) for kind in kinds or of))


def _typed(kind: str, raw: st.SearchStrategy[Any]) -> st.SearchStrategy[Value]:
    return raw.map(lambda value: {kind: value})


BAD: st.SearchStrategy[Value] = st.one_of(
    st.sampled_from(BAD_NUMBERS).map(lambda raw: {"N": raw}),
    st.sampled_from(
        [
            {"SS": []},
            {"NS": []},
            {"BS": []},
            {"SS": ["a", "a"]},
            {"NS": ["1", "1.0"]},
            {"BS": [b"a", b"a"]},
            {"NS": ["1", "x"]},
            {"NULL": False},
            {"L": [{"N": "x"}]},
            {"M": {"a": {"SS": []}}},
            {"L": [{"L": [{"N": "1" * 39}]}]},
        ]
    ),
)
"""Values that the service refuses wherever they stand."""


def deep(levels: int) -> Value:
    """Return a list in a list, and so on."""
    value: Value = {"S": "deep"}
    for _ in range(levels):
        value = {"L": [value]}
    return value


DEEP = st.sampled_from([deep(31), deep(32), deep(33)])
LARGE = st.sampled_from([1_000, 1_024, 5_000, 100_000, 409_000, 409_600]).map(
    lambda size: {"B": b"x" * size}
)


@cache
def mostly(usual: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> Any:
    """Return the usual nine times of ten; the usual is the simpler one."""
    return st.integers(0, 9).flatmap(lambda n: rare if n == 9 else usual)


ANY: st.SearchStrategy[Value] = mostly(value_of(), st.one_of(BAD, DEEP, value_of("S", "N"), LARGE))
