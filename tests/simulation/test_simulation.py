"""The application keeps its guarantees under faults; and the simulation finds what breaks them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.dispatch import dispatcher
from fairbox.dispatch.dispatcher import Dispatcher
from fairbox.dispatch.maintenance.sweep import Sweep, SweepReport
from fairbox.dispatch.ports import TAKEN
from fairbox.dispatch.sending.jobs import Job
from fairbox.dispatch.sending.sender import Sender
from fairbox.dispatch.stream import marking
from fairbox.dispatch.stream.marking import apply_changes
from fairbox.dynamodb.delivery_store import DynamoStore
from fairbox.model.stored_messages import StoredMessage
from fairbox.model.subscription_status import SubscriptionStatus
from fairbox_simulation.chaos import CALM, Chaos
from fairbox_simulation.oracle import run
from fairbox_simulation.world import World

from tests.support.seeds import seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dispatch.delivery_result import DeliveryResult

SEEDS = 25
MESSAGES = 450


@pytest.mark.guarantee(
    "never-lost",
    "never-stuck",
    "duplicates-explained",
    "dead-letter-history",
    "only-cancelled",
    "ledger-exact",
    "archive-complete",
    "counts-exact",
)
@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_every_guarantee_holds_whatever_fails(seed: int) -> None:
    assert run(World(seed, Chaos()), MESSAGES) == []


@pytest.mark.extended  # more worlds
@pytest.mark.parametrize("seed", seeds(1000, 1010))
def test_without_faults_of_ours_nothing_comes_twice(seed: int) -> None:
    assert run(World(seed, CALM), MESSAGES) == []


@pytest.mark.extended  # more worlds
@pytest.mark.parametrize("seed", seeds(2000, 2005))
def test_an_unready_world_loses_nothing(seed: int) -> None:
    chaos = Chaos(tables=0.2, kills=0.15, throttled=0.2, away=0.2, refused=0.1)
    assert run(World(seed, chaos), MESSAGES) == []


@pytest.mark.extended  # more worlds
@pytest.mark.parametrize("seed", seeds(3000, 3008))
def test_destinations_that_fail_hang_throttle_and_come_back_lose_nothing(seed: int) -> None:
    assert run(World(seed, replace(CALM, outages=0.5)), MESSAGES) == []


@pytest.mark.parametrize("seed", seeds(3100, 3104, usual=0))
def test_nor_do_they_while_everything_else_fails_too(seed: int) -> None:
    assert run(World(seed, Chaos(outages=0.5)), MESSAGES) == []


def test_a_seed_repeats_to_the_last_event() -> None:
    lines = []
    for _ in range(2):
        world = World(5, Chaos())
        run(world, 100)
        lines.append(world.app.archive.lines)
    assert lines[0] == lines[1]
    assert len(lines[0]) > 100


class TestMutants:
    """Each breaks one rule on purpose; a simulation that does not see it would prove nothing."""

    def finds(self, breach: str, chaos: Chaos, messages: int = 60, first: int = 0) -> bool:
        """Whether one of a few seeds shows the breach, beginning with one that did."""
        worlds = (World(seed, chaos) for seed in range(first, first + 8))
        return any(breach in found for world in worlds for found in run(world, messages))

    def test_deleting_before_sending_loses_messages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        delete_before_sending(monkeypatch)
        assert self.finds("lost: ", CALM)

    def test_ignoring_who_took_it_sends_twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def mutant(self: StoredMessage, subscriptions: frozenset[str]) -> frozenset[str]:
            return frozenset(s for s in subscriptions if not self.state(s).dead)

        monkeypatch.setattr(StoredMessage, "lacking", mutant)
        assert self.finds("duplicated: ", CALM)

    def test_counting_without_sequences_counts_wrong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def mutant(row: Any, changes: Any, **more: Any) -> Any:
            forgetful = replace(row, ready_sequence="", later_sequence="")
            return apply_changes(forgetful, changes, **more)

        monkeypatch.setattr(marking, "apply_changes", mutant)
        assert self.finds("counts: ", replace(CALM, repeats=0.3), first=6)

    def test_sending_without_turns_breaks_the_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def mutant(subscription: Any, stored: StoredMessage, in_order: bool, topic: Any) -> Job:
            return Job(subscription, stored, in_order=False, topic=topic)

        monkeypatch.setattr(dispatcher, "Job", mutant)
        assert self.finds("out of order: ", CALM)

    def test_taking_silence_for_consent_loses_messages(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send = Sender.send_call

        def mutant(self: Sender, *given: Any) -> Any:
            outcomes = send(self, *given)
            return {k: TAKEN if o.verdict == "throttled" else o for k, o in outcomes.items()}

        monkeypatch.setattr(Sender, "send_call", mutant)
        assert self.finds("lost: ", CALM)

    def test_dying_without_a_dead_letter_loses_messages(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for move in ("bury", "finish"):
            monkeypatch.setattr(DynamoStore, move, lambda self, m, _: self.delete_marked(m))
        assert self.finds("lost: ", CALM)

    def test_a_circuit_that_never_closes_leaves_messages_behind(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            SubscriptionStatus, "admits", lambda self, _: "all" if self.ready else "none"
        )
        # few messages: what nobody may send is visited in vain for hours
        assert self.finds("still outstanding", replace(CALM, outages=0.5), messages=100, first=1)

    def test_a_sweep_that_never_rings_leaves_messages_behind(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Sweep, "run", lambda *_, **__: SweepReport())
        assert self.finds("still outstanding", Chaos(lost_doorbells=0.5), first=3)


def delete_before_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the rule that a message is deleted after it was sent."""
    deliver = Dispatcher.deliver

    def mutant(self: Dispatcher, messages: Sequence[StoredMessage], **more: Any) -> DeliveryResult:
        self.store.delete(messages)
        return deliver(self, messages, **more)

    monkeypatch.setattr(Dispatcher, "deliver", mutant)
