"""The demo's account: messages sent compared with messages received, byte for byte."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from fairbox.model.ids import time_of

from local.accounting.order import KeyOrder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.model.messages import MessageRef

    from local.accounting.meter import Meter
    from local.demo.arrivals import Arrival
    from local.demo.plan import Sample


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of `.local/demo.json`: counts, cost per message, milliseconds; fan-out apart."""

    messages: int
    deliveries: int
    lost: int
    duplicated: int
    out_of_order: int
    wru_per_message: float
    rru_per_message: float
    calls_per_message: float
    p50_ms: float
    p99_ms: float
    unloaded_p50_ms: float = 0.0
    batch_items: int = 0
    batch_completions: int = 0

    def as_dict(self) -> dict[str, float]:
        """Return the figures by name."""
        return asdict(self)


def account(
    sent: Mapping[MessageRef, Sample],
    wanted: Mapping[str, frozenset[str]],
    ordered: frozenset[str],
    arrivals: Sequence[Arrival],
    meter: Meter,
) -> Summary:
    """Compare the messages sent with the messages that arrived.

    A message whose bytes differ counts as lost.

    Args:
        sent: published samples, by ref.
        wanted: the subscriptions of each topic.
        ordered: topics that keep order per key.
        arrivals: in the order of arrival.
        meter: the consumption of the application.
    """
    first: dict[tuple[MessageRef, str], Arrival] = {}
    seen: Counter[tuple[MessageRef, str]] = Counter()
    for arrival in arrivals:
        sample = sent.get(arrival.ref)
        if sample is not None and arrival.body == sample.body:
            place = (arrival.ref, arrival.subscription)
            seen[place] += 1
            first.setdefault(place, arrival)
    expected = {(ref, name) for ref in sent for name in wanted[ref.topic]}
    delays = [a.at - time_of(ref.id) for (ref, _), a in first.items()] or [0.0]
    cuts = statistics.quantiles(delays, n=100) if len(delays) > 1 else delays * 99
    count = max(1, len(sent))
    return Summary(
        messages=len(sent),
        deliveries=sum(seen.values()),
        lost=len(expected - set(first)),
        duplicated=sum(n - 1 for n in seen.values()),
        out_of_order=_out_of_order(sent, ordered, list(first.values())),
        wru_per_message=round(meter.wru / count, 3),
        rru_per_message=round(meter.rru / count, 3),
        calls_per_message=round(sum(meter.calls.values()) / count, 3),
        p50_ms=round(cuts[49], 1),
        p99_ms=round(cuts[98], 1),
    )


def _out_of_order(
    sent: Mapping[MessageRef, Sample], ordered: frozenset[str], firsts: Sequence[Arrival]
) -> int:
    """Count first deliveries below the greatest id of their key delivered before them."""
    order = KeyOrder()
    wrong = 0
    for arrival in firsts:
        if arrival.ref.topic not in ordered:
            continue
        place = (arrival.ref.topic, sent[arrival.ref].key, arrival.subscription)
        wrong += order.overtaken(place, arrival.ref.id) is not None
    return wrong
