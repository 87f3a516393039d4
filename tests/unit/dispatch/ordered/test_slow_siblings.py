"""A quick webhook of an ordered topic beside a slow one: what holds, and the known limit.

Ordered topics have no visits apart. So the slow webhook paces its siblings as soon as it is busy
for more than half of the time; `docs/explanation/fairness.md` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from fairbox import Message, Subscription, Topic
from fairbox.dispatch.ports import TAKEN, Doorbell, Limits, Outcome
from fairbox.testing.application import MemoryDestination

from tests.support.visit_workers import VisitWorkers

if TYPE_CHECKING:
    from fairbox.tables.stored_messages import StoredMessage

SECONDS: Final = 60.0
SLOW: Final = 2.0  # s a call
TAKES: Final = 8 / SLOW  # messages a second, one in each shard


class Simulation(VisitWorkers):
    """An ordered topic of eight shards with a quick webhook, and perhaps a slow one."""

    def __init__(self, rate: float, *, slow: bool) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.app.outbox.create_topic(Topic("ordered", ordering="key"))
        for name, take in {"quick": self._quickly, "slow": self._slowly}.items():
            hook = MemoryDestination(Limits(1, 1 << 20), answer=take, quick=False)
            self.app.destinations.put(f"https://{name}.example", hook)
            if slow or name == "quick":
                one = Subscription("ordered", name, f"https://{name}.example")
                self.app.outbox.add_subscription(one)
        for n in range(int(rate * SECONDS)):
            self.at(self.began + n / rate, self._publish)

    def median(self) -> float:
        """Return how long half of the messages took to the quick webhook, at most (s)."""
        self.run(SECONDS)
        return sorted(self.waits)[len(self.waits) // 2]

    def _publish(self) -> None:
        body, ids = str(self.clock.now()).encode(), self.app.ids
        message = Message(topic="ordered", body=body, id=ids.next(), partition_key=ids.next())
        ref = self.app.outbox.add(message)
        self.bells.ring([Doorbell("ordered", ref.epoch, ref.shard, (ref,))])

    def _quickly(self, stored: StoredMessage) -> Outcome:
        self.clock.advance(0.02)
        self.waits.append(self.clock.now() - float(stored.message.body))
        return TAKEN

    def _slowly(self, _: StoredMessage) -> Outcome:
        self.clock.advance(SLOW)
        return TAKEN


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_a_slow_sibling_that_is_busy_for_half_of_the_time_changes_no_median(share: float) -> None:
    alone, beside = (Simulation(share * TAKES, slow=slow).median() for slow in (False, True))
    assert beside <= 2 * alone


def test_one_that_takes_less_than_what_comes_paces_its_siblings() -> None:
    alone, beside = (Simulation(1.5 * TAKES, slow=slow).median() for slow in (False, True))
    assert beside > 20 * alone  # the known limit: once it is lifted, the pages must say so
