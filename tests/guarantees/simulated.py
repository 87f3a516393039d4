"""Guarantees of the documents that simulated worlds check, each with mutants that must fail."""

from __future__ import annotations

from typing import Final

from tests.guarantees.guarantee import Guarantee
from tests.guarantees.loaded import LOADED
from tests.guarantees.queues import QUEUES

_WORLDS: Final = ("whole", "delivery", "resizing", "riding")
_DELIVERY: Final = "explanation/delivery.md"
_ORDER: Final = "explanation/order.md"
_BATCHES: Final = "explanation/batches.md"
_QUEUE: Final = "explanation/queue.md"
_RESIZE: Final = "how-to/resize.md"
_OPERATE: Final = "how-to/operate-and-repair.md"
_ORACLE: Final = "fairbox_simulation.oracle:Oracle"
_ORDERED: Final = "fairbox_simulation.ordered_world:OrderedWorld"
_RESIZED: Final = "fairbox_simulation.resizing_world"
_ITEMS: Final = "fairbox_simulation.batch_item_oracle:BatchItemOracle"
_BATCH: Final = "fairbox_simulation.batches.oracle:Oracle"
_CAST: Final = "fairbox_simulation.batches.actors:Cast"
_SIM: Final = "tests/simulation/test_simulation.py::TestMutants"
_SIM_ORDERED: Final = "tests/simulation/test_ordered.py::TestMutants"
_SIM_RESIZING: Final = "tests/simulation/test_resizing.py::TestMutants"
_SIM_WHOLE: Final = "tests/simulation/test_whole.py::TestMutants"
_SIM_ITEMS: Final = "tests/simulation/test_batch_items.py::TestMutants"
_MUTANTS: Final = "tests/simulation/test_mutants.py"
_BATCH_MUTANT: Final = f"{_MUTANTS}::test_what_a_batch_without_one_rule_breaks_is_found"
_EXPLORER: Final = "tests/batches/test_explorer.py"

DELIVERY: Final = (
    Guarantee(
        text="What was acknowledged is delivered, dead or cancelled, never lost.",
        page=f"{_DELIVERY}#outstanding-means-that-the-item-exists",
        kinds=("lost",),
        invariants=(
            f"{_ORACLE}._lost",
            f"{_ORACLE}._pulled",
            f"{_ORDERED}.check",
            f"{_ITEMS}._lost",
        ),
        mutants=(
            f"{_SIM}.test_deleting_before_sending_loses_messages",
            f"{_SIM}.test_taking_silence_for_consent_loses_messages",
            f"{_SIM}.test_dying_without_a_dead_letter_loses_messages",
            f"{_SIM_ITEMS}.test_deletes_without_conditions_lose_what_was_redriven",
        ),
        scenarios=(*_WORLDS, "ordered"),
    ),
    Guarantee(
        text="Nothing stays outstanding for ever: the sweep finds what no doorbell named, and a "
        "circuit closes when its destination is back.",
        page=f"{_OPERATE}#automatic-repair",
        kinds=("lost", "still there"),
        invariants=(f"{_ORACLE}._lost", f"{_ITEMS}._item"),
        mutants=(
            f"{_SIM}.test_a_sweep_that_never_rings_leaves_messages_behind",
            f"{_SIM}.test_a_circuit_that_never_closes_leaves_messages_behind",
        ),
        scenarios=_WORLDS,
    ),
    Guarantee(
        text="A message comes twice only where a fault explains it.",
        page=f"{_DELIVERY}#at-least-once-delivery",
        kinds=("duplicated",),
        invariants=(f"{_ORACLE}._duplicates", f"{_ORDERED}.check"),
        mutants=(f"{_SIM}.test_ignoring_who_took_it_sends_twice",),
        scenarios=(*_WORLDS, "ordered"),
        faults=("refused", "throttled", "away", "outages", "given_up", "lost_doorbells"),
    ),
    Guarantee(
        text="A dead letter has its history, and says why it died.",
        page=f"{_OPERATE}#read-dead-letters",
        kinds=("a dead letter without history",),
        invariants=(f"{_ORACLE}._lost",),
        mutants=(f"{_MUTANTS}::TestDelivery.test_burying_without_the_history_is_found",),
        scenarios=_WORLDS,
    ),
    Guarantee(
        text="Only what somebody cancelled is cancelled.",
        page=f"{_OPERATE}#cancel-a-message",
        kinds=("cancelled by nobody",),
        invariants=(f"{_ORACLE}._lost",),
        mutants=(f"{_MUTANTS}::TestDelivery.test_telling_of_a_death_as_a_cancel_is_found",),
        scenarios=_WORLDS,
    ),
    Guarantee(
        text="The ledger has each delivery once, and nothing else; what is dead was not delivered.",
        page=f"{_DELIVERY}#exact-counts-from-a-stream-that-repeats-itself",
        kinds=(
            "ledger twice",
            "the ledger lacks",
            "the ledger has what nobody took",
            "dead and delivered",
        ),
        invariants=(f"{_ORACLE}._ledger_breaches",),
        mutants=(
            f"{_MUTANTS}::TestDelivery.test_a_delivery_of_another_time_each_time_is_found",
            f"{_MUTANTS}::TestDelivery.test_a_ledger_that_is_not_written_is_found",
            f"{_MUTANTS}::TestDelivery.test_telling_of_a_death_as_a_delivery_is_found",
        ),
        scenarios=_WORLDS,
    ),
    Guarantee(
        text="The archive has every event once: each add, failure, delivery and death.",
        page="how-to/analyse-history.md",
        kinds=(
            "added events differ from inserts",
            "archive and ledger differ",
            "dead events and dead letters differ",
            "a failure told again",
        ),
        invariants=(f"{_ORACLE}._archive_breaches",),
        mutants=(
            f"{_MUTANTS}::TestDelivery.test_an_event_of_another_id_each_time_is_found",
            f"{_MUTANTS}::TestDelivery.test_a_ledger_that_is_not_written_is_found",
            f"{_MUTANTS}::TestDelivery.test_telling_of_a_death_as_a_cancel_is_found",
        ),
        scenarios=_WORLDS,
    ),
    Guarantee(
        text=(
            "Counts are exact though the stream repeats itself, and after a batch was given up "
            "repair makes them exact again, dead letters included."
        ),
        page=f"{_DELIVERY}#exact-counts-from-a-stream-that-repeats-itself",
        kinds=("counts",),
        invariants=(f"{_ORACLE}.counts",),
        mutants=(f"{_SIM}.test_counting_without_sequences_counts_wrong",),
        scenarios=_WORLDS,
    ),
)

ORDER: Final = (
    Guarantee(
        text="No first delivery comes before that of an older message of its key.",
        page=_ORDER,
        kinds=("out of order",),
        invariants=(f"{_ORACLE}._order_breaches", f"{_ORDERED}._order"),
        mutants=(
            f"{_SIM}.test_sending_without_turns_breaks_the_order",
            f"{_SIM_ORDERED}.test_sending_a_follower_while_its_key_is_held_breaks_the_order",
            f"{_SIM_ORDERED}.test_a_late_workers_write_without_version_breaks_the_order",
            f"{_SIM_RESIZING}.test_a_cut_that_is_not_announced_breaks_the_order",
            f"{_SIM_RESIZING}.test_a_new_shard_that_does_not_wait_breaks_the_order",
        ),
        scenarios=(*_WORLDS, "ordered"),
    ),
    Guarantee(
        text="Each message before the beginning of a shard's row is held by an entry with its id "
        "or a smaller one.",
        page=f"{_ORDER}#deferred-keys-in-the-shards-row",
        kinds=("passed by",),
        invariants=(f"{_ORDERED}._check_held",),
        mutants=(f"{_SIM_ORDERED}.test_beginning_behind_a_young_id_passes_messages_by",),
        scenarios=("ordered",),
    ),
    Guarantee(
        text="A key that is due is never forgotten, and a stuck one stops no other.",
        page=f"{_ORDER}#deferred-keys-in-the-shards-row",
        kinds=("forgotten",),
        invariants=(f"{_ORDERED}.check",),
        mutants=(f"{_SIM_ORDERED}.test_forgetting_what_is_due_leaves_messages_behind",),
        scenarios=("ordered",),
    ),
)

RESIZING: Final = (
    Guarantee(
        text="The id's time chooses the epoch, and adding a message again finds it.",
        page=f"{_RESIZE}#phases-of-a-resize",
        kinds=("misplaced", "added twice"),
        invariants=(f"{_RESIZED}:_misplaced", f"{_RESIZED}:breaches_of"),
        mutants=(
            f"{_SIM_RESIZING}.test_a_cut_that_is_not_announced_puts_messages_into_the_wrong_epoch",
            f"{_MUTANTS}::TestResizing.test_an_epoch_that_the_id_does_not_choose_is_found",
        ),
        scenarios=("whole", "resizing"),
    ),
    Guarantee(
        text="An epoch stays while it holds messages or dead letters, and then it leaves.",
        page=f"{_RESIZE}#phases-of-a-resize",
        kinds=("stranded", "a dead letter that nobody lists", "an empty epoch stays"),
        invariants=(f"{_RESIZED}:breaches_of", f"{_RESIZED}:run_resizing"),
        mutants=(
            f"{_MUTANTS}::TestResizing.test_an_epoch_that_leaves_while_it_holds_messages_is_found",
            f"{_MUTANTS}::TestResizing.test_an_epoch_that_never_leaves_is_found",
            f"{_SIM_RESIZING}.test_an_epoch_that_leaves_with_dead_letters_strands_them",
        ),
        scenarios=("whole", "resizing"),
    ),
)

BATCHES: Final = (
    Guarantee(
        text="A batch is announced once, when every item is settled: not early, not never.",
        page=f"{_BATCHES}#exactly-one-announcement",
        kinds=(
            "completed early",
            "announced not once",
            "not all settled",
            "announced early",
            "never completed",
            "reported, and not complete",
        ),
        invariants=(
            f"{_ITEMS}._early",
            f"{_ITEMS}.breaches",
            f"{_BATCH}._announced",
            f"{_BATCH}.at_the_end",
        ),
        mutants=(
            f"{_SIM_ITEMS}.test_acking_whatever_left_the_outbox_acks_the_dead",
            f"{_MUTANTS}::TestBatchItems.test_deliveries_that_ack_nothing_are_found",
            f"{_SIM_WHOLE}.test_telling_again_of_a_batch_that_is_complete_is_found",
            _BATCH_MUTANT,
            f"{_EXPLORER}::test_a_mutant_is_rejected",
        ),
        scenarios=("whole", "riding", "batches"),
        checks=(f"{_EXPLORER}::test_every_interleaving_keeps_the_guarantees",),
    ),
    Guarantee(
        text="Its figures are true, and it has all items of its adds: bits and sums of the tree "
        "agree at every moment.",
        page=f"{_BATCHES}#exactly-one-announcement",
        kinds=("identity", "announced wrongly", "completed without all", "impossible progress"),
        invariants=(
            f"{_BATCH}._identities",
            f"{_BATCH}._announced",
            f"{_BATCH}.at_the_end",
            f"{_ITEMS}.breaches",
            f"{_CAST}.watch",
        ),
        mutants=(_BATCH_MUTANT, f"{_EXPLORER}::test_a_mutant_is_rejected"),
        scenarios=("whole", "riding", "batches"),
        checks=(f"{_EXPLORER}::test_every_interleaving_keeps_the_guarantees",),
    ),
    Guarantee(
        text="A settled item stays settled, an add that is repeated gives the same ids, and "
        "nothing is refused without a reason.",
        page=f"{_BATCHES}#exactly-one-announcement",
        kinds=(
            "acked, and pending again",
            "acked, and failed",
            "another answer",
            "refused without a reason",
        ),
        invariants=(
            f"{_BATCH}.after_the_storm",
            f"{_BATCH}.at_the_end",
            f"{_BATCH}.handed_out",
            f"{_CAST}._refused",
        ),
        mutants=(_BATCH_MUTANT, "tests/batches/test_simulation.py::test_a_mutant_is_found"),
        scenarios=("batches",),
    ),
    Guarantee(
        text="Once somebody was told that a batch is cancelled or reaped, every ack of its items "
        "is refused.",
        page=f"{_BATCHES}#the-end-of-a-batch",
        kinds=("not refused",),
        invariants=(f"{_CAST}.settle",),
        mutants=("tests/batches/test_simulation.py::test_a_mutant_is_found",),
        scenarios=("batches",),
        checks=(f"{_EXPLORER}::test_every_interleaving_keeps_the_guarantees",),
    ),
    Guarantee(
        text="A batch that is reaped is told of on `fairbox.batches.orphaned`, once.",
        page=f"{_BATCHES}#the-end-of-a-batch",
        kinds=("orphan notes",),
        invariants=(f"{_BATCH}.at_the_end",),
        mutants=(_BATCH_MUTANT,),
        scenarios=("batches",),
    ),
    Guarantee(
        text="The item of a message is acked when that was delivered and failed when it died; a "
        "redrive puts it back.",
        page="how-to/track-a-fan-out.md",
        kinds=(
            "acked though dead",
            "failed though delivered",
            "pending behind its message",
            "pending for ever",
        ),
        invariants=(f"{_ITEMS}._item", f"{_ITEMS}.resting"),
        mutants=(
            f"{_MUTANTS}::TestBatchItems.test_deliveries_that_ack_nothing_are_found",
            f"{_SIM_ITEMS}.test_failing_from_the_stream_fails_what_was_put_back",
            f"{_SIM_ITEMS}.test_failing_beside_the_move_leaves_items_pending",
            f"{_SIM_ITEMS}.test_redriving_without_a_retry_leaves_items_failed",
        ),
        scenarios=("whole", "riding"),
    ),
)

GROUPS: Final = {
    "Delivery": DELIVERY,
    "Order": ORDER,
    "Resizing": RESIZING,
    "Batches": BATCHES,
    "Queues": QUEUES,
    "Load": LOADED,
}
"""The guarantees that simulated worlds are held to, by what they are about."""
