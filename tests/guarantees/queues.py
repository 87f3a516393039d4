"""Guarantees to consumers, which the full-system scenario checks."""

from __future__ import annotations

from typing import Final

from tests.guarantees.guarantee import Guarantee

_QUEUE: Final = "explanation/queue.md"
_CHECKER: Final = "fairbox_simulation.consumer_checker:ConsumerChecker"
_ACCOUNT: Final = "fairbox_simulation.whole_run:Account"
_MUTANTS: Final = "tests/simulation/test_whole.py::TestMutants"
_FAULTS: Final = "tests/unit/queue/test_faults.py"
_KEYS: Final = "tests/unit/queue/test_keys.py"
_CONTRACT: Final = "tests/contract/test_queue.py"
_WHOLE: Final = ("whole",)
_EXPIRING: Final = "fairbox_simulation.expiring_world:ExpiringWorld"
_EXPIRY_MUTANTS: Final = "tests/simulation/test_expiring.py::TestMutants"
_EXPIRY: Final = "tests/unit/dispatch/maintenance/test_expiry.py"

QUEUES: Final = (
    Guarantee(
        text="On a topic with `message_retention`, no message expires before its time or while a "
        "consumer holds it, and in the end no message that is too old is left.",
        page=f"{_QUEUE}#expiry",
        kinds=(
            "expired early",
            "expired though held",
            "expired though acknowledged",
            "never expired",
        ),
        invariants=(f"{_EXPIRING}.breaches", f"{_EXPIRING}.wait"),
        mutants=(
            f"{_EXPIRY_MUTANTS}.test_what_looks_at_no_holder_is_found",
            f"{_EXPIRY_MUTANTS}.test_what_counts_from_the_id_of_a_delayed_message_is_found",
            f"{_EXPIRY_MUTANTS}.test_a_sweep_that_lets_nothing_expire_is_found",
        ),
        scenarios=("expiring",),
        checks=(
            f"{_EXPIRY}::TestHeldMessages.test_a_held_message_stays_and_expires_when_it_comes_back",
            f"{_EXPIRY}::TestCrashes.test_a_mark_that_a_crash_left_is_finished_by_the_next_sweep",
        ),
    ),
    Guarantee(
        text="A message of a pulled topic is acknowledged once, or still there, or dead, or "
        "cancelled; and what is there is received.",
        page=_QUEUE,
        kinds=(
            "lost",
            "never received",
            "acked and still there",
            "acked and dead",
            "received after its ack",
        ),
        invariants=(
            f"{_ACCOUNT}.breaches",
            f"{_ACCOUNT}._of_message",
            f"{_CHECKER}.received",
        ),
        mutants=(f"{_MUTANTS}.test_an_ack_that_deletes_nothing_is_found",),
        scenarios=_WHOLE,
        checks=(
            f"{_FAULTS}::test_every_message_is_acknowledged_once_or_still_there",
            f"{_FAULTS}::test_with_few_attempts_every_message_is_acknowledged_or_dead",
            (
                "tests/contract/test_consumer.py"
                "::test_every_message_is_accounted_for_though_consumers_are_killed"
            ),
        ),
    ),
    Guarantee(
        text="No two receipts of one message are good at once, and a good one is not refused.",
        page=f"{_QUEUE}#receipts",
        kinds=("two holders", "a good receipt was refused"),
        invariants=(f"{_CHECKER}.received", f"{_CHECKER}.refused"),
        mutants=(f"{_MUTANTS}.test_receives_that_do_not_look_who_holds_give_two_holders",),
        scenarios=_WHOLE,
        checks=("tests/unit/queue/test_model.py::test_the_queue_does_what_a_plain_model_does",),
    ),
    Guarantee(
        text="A receipt that has expired or that another has followed is refused, and changes "
        "nothing.",
        page=f"{_QUEUE}#receipts",
        kinds=(
            "acked by a receipt that was followed",
            "changed by a receipt that was followed",
            "a followed receipt was taken for good",
            "an expired receipt was taken for good",
        ),
        invariants=(f"{_CHECKER}.acked", f"{_CHECKER}.used_late"),
        mutants=(
            f"{_MUTANTS}.test_receipts_without_fences_change_what_others_hold",
            f"{_MUTANTS}.test_an_expired_receipt_that_counts_is_found",
        ),
        scenarios=_WHOLE,
        checks=(
            f"{_CONTRACT}::TestHolding.test_a_stale_receipt_is_refused_and_changes_nothing",
            "tests/unit/queue/test_model.py::test_the_queue_does_what_a_plain_model_does",
        ),
    ),
    Guarantee(
        text="One consumer at a time holds a key, whose messages are received and acknowledged in "
        "the order of ids; no number of stuck keys stops another.",
        page=f"{_QUEUE}#ordered-topics-claims-in-the-shards-row",
        kinds=("two of a key", "received out of order"),
        invariants=(f"{_CHECKER}._received_in_order", f"{_CHECKER}.disorder"),
        mutants=(f"{_MUTANTS}.test_a_late_receive_without_version_gives_two_holders",),
        scenarios=_WHOLE,
        checks=(
            f"{_FAULTS}::test_a_key_is_received_in_the_order_of_its_ids_under_faults",
            f"{_FAULTS}::test_several_messages_of_a_key_are_done_in_order_whatever_fails",
            f"{_KEYS}::TestWaitingKeys.test_no_number_of_them_stops_a_healthy_key",
            f"{_KEYS}::TestRuns.test_none_is_acknowledged_before_those_that_came_before_it",
            f"{_CONTRACT}::TestOrdered.test_one_message_of_a_key_is_held_and_the_others_go_on",
            (
                "tests/unit/queue/test_costs.py"
                "::test_a_stuck_key_with_many_followers_is_passed_once_and_then_costs_nothing"
            ),
        ),
    ),
    Guarantee(
        text="What a batch wrote is kept for a week after it has completed, and then erased.",
        page="explanation/batches.md#the-end-of-a-batch",
        kinds=("erased early", "never erased"),
        invariants=(
            "fairbox_simulation.whole_run:erased_early",
            "fairbox_simulation.whole_run:forgotten",
        ),
        mutants=(
            f"{_MUTANTS}.test_erasing_at_once_is_found",
            f"{_MUTANTS}.test_erasing_only_what_says_that_it_failed_leaves_records_behind",
        ),
        scenarios=_WHOLE,
    ),
)
"""The guarantees of queues, and of what is cleaned."""
