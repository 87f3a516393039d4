"""Guarantees that tests other than the simulation check: queue, fairness, circuits, operators."""

from __future__ import annotations

from typing import Final

from tests.guarantees.guarantee import Guarantee

_QUEUE: Final = "explanation/queue.md"
_OPERATE: Final = "how-to/operate-and-repair.md"
_CONTRACT: Final = "tests/contract/test_queue.py"
_SHARES: Final = "tests/unit/dispatch/fair/test_shares.py"
_CALLS: Final = "tests/unit/dispatch/fair/test_calls.py"
_CIRCUITS: Final = "tests/unit/dispatch/sending/test_circuit_breakers.py"
_COSTS: Final = "tests/unit/queue/test_costs.py"
_CONSUMER: Final = "tests/unit/consumer/test_consumer.py"
_WORKERS: Final = "tests/unit/consumer/test_many_workers.py"
_RATE: Final = "tests/unit/consumer/test_rate.py"
_LIMITS: Final = "tests/unit/dispatch/sending/test_rate_limits.py"
_REDRIVE: Final = "tests/unit/client/test_redrive.py"
_ARCHIVE: Final = "tests/unit/aws/test_firehose_archive.py"
_FUNCTIONS: Final = "tests/functions/test_archive.py"
_PURGE: Final = "tests/unit/client/test_purge.py"

_RECOUNTS: Final = "tests/unit/dispatch/maintenance/test_recounts.py"
_GIVEN_UP: Final = "tests/unit/dispatch/maintenance/test_given_up.py"
_ASIDE: Final = "tests/unit/dispatch/stream/test_set_aside.py"
_ADDING: Final = "tests/contract/test_adding_again.py"
_SKIPS: Final = "tests/unit/client/test_skips.py"
_DELIVERY: Final = "explanation/delivery.md"
_HISTORY: Final = "tests/unit/dispatch/test_failure_history.py"
_BODIES: Final = "tests/unit/dispatch/sending/test_bodies_in_hand.py"
_BODY_LIMITS: Final = "tests/unit/client/test_body_limits.py"

COUNTS: Final = (
    Guarantee(
        text=(
            "A message that all of up to a hundred subscriptions refuse dies for each of them, and "
            "an attempt of a message of 1 KB costs at most one write unit."
        ),
        page=f"{_DELIVERY}#failures-stay-in-place",
        checks=(
            f"{_HISTORY}::TestCost.test_an_attempt_of_a_message_of_1_kb_costs_at_most_a_write_unit",
            f"{_HISTORY}::TestCost.test_attempts_of_one_visit_are_one_write_and_stay_together",
            (
                f"{_HISTORY}::TestDeath"
                ".test_a_message_dies_for_a_hundred_subscriptions_though_it_is_as_large_as_can_be"
            ),
            (
                f"{_HISTORY}::TestDeath"
                ".test_a_message_whose_state_cannot_be_written_at_all_dies_at_once"
            ),
        ),
    ),
    Guarantee(
        text=(
            "A delivery fetches an offloaded body once, and its peak stays below three times the "
            "largest body and 64 MiB."
        ),
        page="how-to/large-bodies.md#memory-of-a-visit",
        checks=(
            f"{_BODIES}::test_six_subscriptions_fetch_a_body_once",
            f"{_BODIES}::TestFetching.test_calls_share_a_body_while_they_hold_it_and_after",
            f"{_BODIES}::TestBound.test_a_call_waits_until_others_have_given_enough_back",
            (
                f"{_BODIES}::TestPeak"
                ".test_a_visit_stays_below_three_times_the_largest_body_and_64_mib"
            ),
        ),
    ),
    Guarantee(
        text=(
            "A body that a subscription's destination cannot take is offloaded or refused when it "
            "is published, or dies at its first attempt."
        ),
        page="how-to/large-bodies.md#limits-of-destinations",
        checks=(
            f"{_BODY_LIMITS}::TestSns.test_with_a_bucket_it_gets_the_address",
            f"{_BODY_LIMITS}::TestSns.test_without_one_it_is_refused_and_nothing_is_written",
            f"{_BODY_LIMITS}::test_what_is_found_only_later_dies_at_the_first_attempt",
        ),
    ),
    Guarantee(
        text="A recount is exact at the row's sequence numbers, however busy the shard is.",
        page=f"{_DELIVERY}#recounts",
        checks=(
            f"{_RECOUNTS}::test_a_recount_of_a_busy_shard_is_exact_at_its_sequence_numbers",
            f"{_RECOUNTS}::test_a_recount_that_is_killed_anywhere_goes_on_or_begins_again",
            (
                f"{_GIVEN_UP}::TestCounts"
                ".test_they_are_right_after_one_run_when_later_batches_were_counted"
            ),
            f"{_GIVEN_UP}::TestCounts.test_an_outbox_too_large_for_one_run_is_corrected",
        ),
    ),
    Guarantee(
        text="A count that is in doubt hides no message from the sweep and the metrics.",
        page=f"{_DELIVERY}#recounts",
        checks=(
            f"{_GIVEN_UP}::TestCounts.test_removals_that_were_given_up_hide_no_message",
            f"{_GIVEN_UP}::TestCounts.test_a_delayed_message_behind_a_wrong_count_is_seen",
        ),
    ),
    Guarantee(
        text="A record or object that cannot be handled stops no other, and is kept and told.",
        page=f"{_OPERATE}#given-up-stream-records",
        checks=(
            f"{_ASIDE}::TestRecords.test_one_is_kept_and_counted_and_the_others_are_marked",
            (
                f"{_GIVEN_UP}::TestFailingObjects"
                ".test_one_stops_neither_the_others_nor_retiring_nor_the_scan"
            ),
        ),
    ),
)

QUEUE: Final = (
    Guarantee(
        text="A receive reads no more behind 100,000 messages than behind 1,000.",
        page=f"{_QUEUE}#costs",
        checks=(f"{_COSTS}::test_a_receive_costs_the_same_whatever_lies_behind",),
    ),
    Guarantee(
        text="What was cancelled is not received, and what is held is not edited.",
        page=_QUEUE,
        checks=(
            f"{_CONTRACT}::TestOperating.test_a_cancelled_message_is_not_received",
            (
                f"{_CONTRACT}::TestOperating"
                ".test_what_is_held_is_neither_edited_nor_moved_nor_cancelled"
            ),
            f"{_CONTRACT}::TestOperating.test_a_claim_that_began_before_an_edit_does_not_stand",
        ),
    ),
    Guarantee(
        text="After a clean stop of a consumer no message is received a second time.",
        page="how-to/consume-a-queue.md#stopping",
        checks=(
            (
                "tests/contract/test_consumer.py"
                "::test_after_a_clean_drain_no_message_is_received_a_second_time"
            ),
            f"{_CONSUMER}::test_after_a_clean_drain_nothing_is_received_a_second_time",
        ),
    ),
    Guarantee(
        text="A consumer with up to 1,000 workers extends each message before its claim ends.",
        page="how-to/consume-a-queue.md#many-workers",
        checks=(
            (f"{_WORKERS}::test_a_thousand_in_hand_are_extended_by_one_thread_before_they_end"),
            f"{_WORKERS}::test_a_throttled_call_is_repeated_in_time",
        ),
    ),
    Guarantee(
        text="A consumer with a rate begins no more messages than the rate and its burst allow.",
        page="how-to/consume-a-queue.md#rate",
        checks=(
            f"{_RATE}::TestRateLimit.test_no_window_has_more_than_rate_and_burst",
            f"{_RATE}::test_running_until_empty_keeps_the_rate",
        ),
    ),
    Guarantee(
        text="A partitioned queue that is resized loses nothing and keeps the order of keys.",
        page="how-to/resize.md#resize-a-partitioned-queue",
        checks=(
            (
                "tests/contract/test_partition_widths.py::TestUnderLoad"
                ".test_nothing_is_lost_and_keys_keep_their_order_while_it_grows_and_shrinks"
            ),
            (
                "tests/contract/test_partition_widths.py::TestOrder"
                ".test_a_key_goes_on_in_its_new_partition_once_its_old_one_is_done"
            ),
        ),
    ),
)

SENDING: Final = (
    Guarantee(
        text="Between two messages of a topic others send no more than the bound of a gap.",
        page="explanation/fairness.md#the-bound-of-a-gap",
        checks=(
            f"{_SHARES}::test_the_largest_gap_of_any_topic_stays_under_its_bound",
            f"{_SHARES}::test_bytes_are_shared_by_weight_whatever_the_sizes",
        ),
    ),
    Guarantee(
        text="Direct messages take up to half of what is sent while topics wait.",
        page="explanation/fairness.md#a-cycle",
        checks=(f"{_CALLS}::test_direct_messages_take_at_most_half_while_topics_wait",),
    ),
    Guarantee(
        text="An outage costs next to nothing, and one dead letter in ten probes at most.",
        page="explanation/circuits.md#propagation-and-cost",
        checks=(
            (
                f"{_CIRCUITS}"
                "::test_an_outage_costs_next_to_nothing_and_one_dead_letter_in_ten_probes_at_most"
            ),
            f"{_CIRCUITS}::test_while_it_is_open_nothing_is_sent_written_read_or_rung_for",
        ),
    ),
    Guarantee(
        text="One poisoned message cuts off no destination that takes all others.",
        page="explanation/circuits.md#errors-that-count-against-a-destination",
        checks=(
            f"{_CIRCUITS}::test_one_poisoned_message_opens_nothing_however_often_it_is_refused",
        ),
    ),
    Guarantee(
        text="A paused subscription gets nothing, and then all that waited, once.",
        page="explanation/circuits.md#pauses-by-hand",
        checks=(
            (f"{_LIMITS}::TestPauses.test_a_paused_subscription_gets_nothing_and_the_others_go_on"),
            f"{_LIMITS}::TestPauses.test_resumed_it_gets_all_that_waited_at_once_and_once",
        ),
    ),
    Guarantee(
        text="Limits hold: messages in flight, and messages a second.",
        page="explanation/circuits.md#limits",
        checks=(
            (
                f"{_LIMITS}::TestLimitsInFlight"
                ".test_visits_at_a_time_and_messages_a_call_never_exceed_it"
            ),
            f"{_LIMITS}::TestRates.test_a_rate_is_kept_and_used_while_there_is_a_backlog",
        ),
    ),
)

ACTS: Final = (
    Guarantee(
        text="A redrive brings a dead letter back once, to those for whom it died.",
        page=f"{_OPERATE}#send-dead-letters-again",
        checks=(
            f"{_REDRIVE}::TestCrashes.test_an_answer_that_was_lost_brings_nothing_back_twice",
            f"{_REDRIVE}::TestCrashes.test_two_redrives_at_once_bring_it_back_once",
            (
                f"{_REDRIVE}::TestComingBack"
                ".test_only_the_subscriptions_that_it_died_for_get_it_again"
            ),
        ),
    ),
    Guarantee(
        text="What is purged is gone, counted, and in the archive with the reason.",
        page=f"{_OPERATE}#send-dead-letters-again",
        checks=(
            (f"{_PURGE}::TestGoing.test_what_is_purged_is_gone_counted_and_told_with_the_reason"),
        ),
    ),
    Guarantee(
        text="A message that is skipped for one subscription goes to all others and not to that, "
        "and the archive says so; the key goes on.",
        page=f"{_OPERATE}#skip-a-message-for-one-subscription",
        checks=(
            (
                f"{_SKIPS}::TestOneOfSeveral"
                ".test_the_others_get_it_and_the_archive_names_the_one_that_does_not"
            ),
            f"{_SKIPS}::TestOneOfSeveral.test_its_batch_item_is_acked_whichever_comes_last",
            f"{_SKIPS}::TestTheOnlyOne.test_on_an_ordered_topic_its_key_goes_on_at_once",
        ),
    ),
)

ADDING: Final = (
    Guarantee(
        text="A message that is added again while it is outstanding stays as it is, byte for byte, "
        "whichever way it is added.",
        page="how-to/deduplicate.md#add-the-same-message-again",
        checks=(
            f"{_ADDING}::test_each_way_to_add_again_leaves_the_message_as_it_is",
            f"{_ADDING}::test_whatever_happened_to_a_message_adding_it_again_changes_nothing",
            (
                "tests/repository/test_message_writes.py"
                "::test_every_put_and_update_has_a_condition_or_its_reason"
            ),
        ),
    ),
    Guarantee(
        text="A repeated call of an add never takes a message from the consumer that claimed it "
        "in between.",
        page="how-to/deduplicate.md#add-the-same-message-again",
        checks=(
            f"{_ADDING}::test_a_retry_of_a_lost_answer_keeps_the_claim_that_came_between",
            f"{_ADDING}::test_a_retry_of_a_single_add_keeps_the_claim_that_came_between",
        ),
    ),
)

ARCHIVE: Final = (
    Guarantee(
        text="Nothing that the ledger knows is missing from the archive once repair has moved what "
        "waits.",
        page="explanation/delivery.md#the-archive",
        checks=(
            f"{_FUNCTIONS}::test_after_repair_the_archive_lacks_nothing_that_the_ledger_knows",
            f"{_ARCHIVE}::test_nothing_is_missing_once_what_waits_has_been_moved",
            (f"{_ARCHIVE}::test_ten_thousand_lines_are_archived_whatever_firehose_throttles"),
        ),
    ),
    Guarantee(
        text="Ledger and counts are written whatever Firehose throttles.",
        page="explanation/delivery.md#the-archive",
        checks=(
            (
                f"{_FUNCTIONS}"
                "::test_ledger_and_counts_are_written_though_firehose_throttles_everything"
            ),
        ),
    ),
)

_INBOX: Final = "tests/contract/test_inbox.py"

INBOX: Final = (
    Guarantee(
        text="A consumer's transaction with an inbox happens once by (subscription, id).",
        page="how-to/idempotent-consumers.md#repeated-deliveries",
        checks=(
            f"{_INBOX}::TestOnce.test_a_message_that_arrives_again_is_taken_and_changes_nothing",
            f"{_INBOX}::TestOnce.test_duplicates_at_the_same_moment_are_processed_once",
            (
                f"{_INBOX}::TestOnce"
                ".test_a_consumer_that_dies_after_its_transaction_does_not_repeat_it"
            ),
            f"{_INBOX}::TestOnce.test_two_subscriptions_process_a_message_once_each",
            f"{_INBOX}::TestOtherRefusals.test_a_conflict_fails_the_record_and_is_repeated",
            (
                f"{_INBOX}::TestExpiry"
                ".test_an_item_counts_until_its_time_and_not_after_deleted_or_not"
            ),
        ),
    ),
)

GROUPS: Final = {
    "Adding again": ADDING,
    "Counts": COUNTS,
    "Queue": QUEUE,
    "Fairness and circuits": SENDING,
    "Acts of operators": ACTS,
    "Archive": ARCHIVE,
    "Consumers": INBOX,
}
"""The guarantees that are checked elsewhere, by what they are about."""
