"""The public surface: names, and the error tree as its docstring draws it."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import fairbox
import pytest
from fairbox import Message, MessageRef, errors, testing
from fairbox.dispatch import ports

SURFACE = {
    "BodyTooLarge", "Delivery", "FairboxError", "InvalidInput", "Message", "MessageRef",
    "MessagesClaimed", "MessagesNotFound", "MessagesNotWritten", "NotConfigured", "Outbox",
    "Queue", "QueueStats", "Received", "RetryPolicy", "StaleReceipt",
    "Subscription", "SweepResult", "Throttled", "Topic", "TopicConflict", "TopicIsPushed",
    "TransactionCancelled",
    "Unavailable", "UnknownSubscription", "UnknownTopic", "Unreadable",
}  # fmt: skip
OUTBOX = {
    "add", "add_many", "add_subscription", "cancel", "create_topic", "delivered", "from_env", "get",
    "get_many", "mark_delivered", "outstanding", "outstanding_count", "remove_subscription",
    "scan_outstanding", "sweep", "topic", "topics", "transact", "transact_items", "waiting",
}  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert set(fairbox.__all__) >= SURFACE
    assert list(fairbox.__all__) == sorted(fairbox.__all__)


@pytest.mark.parametrize("name", sorted(fairbox.__all__))
def test_every_public_name_is_there_and_documented(name: str) -> None:
    thing = getattr(fairbox, name)
    assert thing.__name__ == name
    assert inspect.getdoc(thing)
    assert name in dir(fairbox)


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        fairbox.Nothing  # noqa: B018 - what is tested


def test_the_outbox_has_what_users_call_each_documented() -> None:
    for name in OUTBOX:
        assert inspect.getdoc(getattr(fairbox.Outbox, name))


def test_outcomes_of_a_destination_are_public_names_of_the_test_doubles() -> None:
    assert testing.TAKEN is ports.TAKEN
    assert testing.Outcome is ports.Outcome
    assert {"TAKEN", "Outcome"} <= set(testing.__all__)


def test_importing_the_package_imports_nothing_that_costs_a_cold_start() -> None:
    code = (
        "import sys, fairbox; print('boto3' in sys.modules, 'fairbox.client.outbox' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["False", "False"]


class TestErrors:
    def tree(self) -> dict[str, tuple[int, list[str]]]:
        """name -> (depth, attributes), as the module's docstring draws it."""
        drawn: dict[str, tuple[int, list[str]]] = {"FairboxError": (0, [])}
        for line in (errors.__doc__ or "").splitlines():
            found = re.match(r"([│ ]*)[├└]── (\w+)(?: \(also \w+\))?((?:\s+\.\w+)*)$", line)
            if found:
                depth = len(found[1]) // 4 + 1
                drawn[found[2]] = (depth, re.findall(r"\.(\w+)", found[3]))
        return drawn

    def test_the_docstring_draws_every_class_at_its_depth(self) -> None:
        classes = {
            name: thing
            for name, thing in inspect.getmembers(errors, inspect.isclass)
            if thing.__module__ == errors.__name__
        }
        depths = {name: thing.__mro__.index(errors.FairboxError) for name, thing in classes.items()}
        assert {name: depth for name, (depth, _) in self.tree().items()} == depths
        assert set(classes) <= set(fairbox.__all__)

    def test_every_error_has_the_attributes_drawn_and_speaks_of_them(self) -> None:
        ref = MessageRef("orders", 0, 3, Message(topic="orders", body=b"").id)
        samples = {
            "field": "body", "expected": "bytes", "size": 9, "limit": 8, "topic": "orders",
            "subscription": "billing", "detail": "why", "missing": (ref,), "key": {"pk": "x"},
            "reason": "why", "setting": "TABLE", "operation": "put_item",
            "reasons": [("None", {})], "batch": "0198", "state": "complete", "items": ("a:0:0",),
            "left": ("a:0:0",), "request_id": "r1", "unreadable": ("orders/0/3/x",),
            "receipts": ("r",), "claimed": (ref,), "refs": (ref,), "since": 1_767_225_600_000,
            "found": 2, "known": 1, "retry_after": 5.0, "ref": ref, "instead": "cancel",
            "item": "a:0:0", "malformed": ("a:0",), "count": 12,
            "changed": 3, "completed": ("0198",), "feed": "trades",
            "code": "bad_request", "text": "why",
        }  # fmt: skip
        for name, (_, attributes) in self.tree().items():
            if attributes:
                error = getattr(errors, name)(*(samples[a] for a in attributes))
                assert isinstance(error, errors.FairboxError)
                assert str(error)
                for attribute in attributes:
                    assert getattr(error, attribute) == samples[attribute]
