"""Work for the fair core, and what a run of it shows: for the tests of fairness."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairbox.dispatch.fair import Pending, Work
from fairbox.dispatch.ports import Limits
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

KB = 1024


@dataclass(frozen=True, slots=True)
class Note:
    """One message: its topic, its number there, its bytes, and whether it is direct."""

    topic: str
    number: int
    size: int
    direct: bool = False
    tenant: str | None = None


@dataclass
class Load:
    """Topics that always have more, as a saturated destination sees them.

    Attributes:
        sizes: of each topic's messages, which repeat.
        weights, batches: by topic; 1 where there is none.
    """

    sizes: dict[str, list[int]]
    weights: dict[str, float] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)

    def work(self, topic: str, number: int) -> Work[Note]:
        sizes = self.sizes[topic]
        note = Note(topic, number, sizes[number % len(sizes)])
        return Work(
            note,
            topic,
            size=note.size,
            weight=self.weights.get(topic, 1.0),
            batch=self.batches.get(topic, 1),
        )

    def largest(self, topic: str) -> int:
        return max(self.sizes[topic])


def saturate(load: Load, limits: Limits, calls: int) -> list[list[Note]]:
    """Make so many calls while every topic keeps a call and its mini-batch waiting."""
    pending: Pending[Note] = Pending()
    added: dict[str, int] = defaultdict(int)
    waiting: dict[str, int] = defaultdict(int)
    made = []
    for _ in range(calls):
        for topic in load.sizes:
            while waiting[topic] < limits.messages + load.batches.get(topic, 1):
                pending.add(load.work(topic, added[topic]))
                added[topic] += 1
                waiting[topic] += 1
        call = pending.next_call(limits)
        made.append(call)
        for note in call:
            waiting[note.topic] -= 1
    return made


def bytes_by_topic(calls: Sequence[Sequence[Note]]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for note in (note for call in calls for note in call):
        sums[note.topic] += note.size
    return dict(sums)


def largest_gaps(calls: Sequence[Sequence[Note]]) -> dict[str, int]:
    """Return, by topic, the most bytes of other topics between two of its messages."""
    gaps: dict[str, int] = defaultdict(int)
    since: dict[str, int] = {}
    for note in (note for call in calls for note in call):
        since[note.topic] = 0
        for topic, before in since.items():
            if topic != note.topic:
                since[topic] = before + note.size
                gaps[topic] = max(gaps[topic], since[topic])
    return dict(gaps)


sizes = st.integers(1 * KB, 256 * KB)
weights = st.sampled_from([0.5, 1.0, 2.0, 3.0, 5.0])


@st.composite
def loads(draw: st.DrawFn, *, most_topics: int = 6, batches: bool = True) -> Load:
    names = [f"t{n}" for n in range(draw(st.integers(2, most_topics)))]
    return Load(
        {name: draw(st.lists(sizes, min_size=1, max_size=4)) for name in names},
        {name: draw(weights) for name in names},
        {name: draw(st.integers(1, 8)) for name in names} if batches else {},
    )


call_limits = st.sampled_from([Limits(10, 1024 * KB), Limits(10, 256 * KB), Limits(1, 256 * KB)])
