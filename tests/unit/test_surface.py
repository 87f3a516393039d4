"""The public surface: names, and the errors as their module's docstring lists them."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fairbox
import pytest
from fairbox import Message, MessageRef, errors, testing
from fairbox.dispatch import ports
from fairbox.problems import FieldError

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_the_version_is_that_of_the_package() -> None:
    assert fairbox.__version__ == version("fairbox")


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
        "import sys, fairbox; print('boto3' in sys.modules);"
        "print('fairbox.client.outbox' in sys.modules);"
        # what every function imports is without what operators alone need
        "import fairbox.runtime.function_application;"
        "print('fairbox.tables.row_layouts' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["False", "False", "False"]


class TestErrors:
    def classes(self) -> dict[str, type[errors.FairboxError]]:
        return {
            cls.__name__: cls
            for cls in tree_of(errors.FairboxError)
            if cls.__module__ == errors.__name__
        }

    def test_the_table_has_every_error_with_its_retry(self) -> None:
        row = re.compile(r"^\| (- )?`(\w+)`.*? \| (\w+) \| \S.*\|$", re.MULTILINE)
        page = Path(__file__).parents[2] / "docs/reference/errors.md"
        rows = row.findall(page.read_text(encoding="utf-8"))
        named = {name: (len(dash) // 2 + 1, retry) for dash, name, retry in rows}
        assert named == {
            name: (
                cls.__mro__.index(errors.FairboxError),
                "same_token" if cls is errors.Unavailable else cls.retry,
            )
            for name, cls in self.classes().items()
        }
        assert set(named) <= set(fairbox.__all__)

    def test_each_can_be_pickled_with_all_that_it_says(self) -> None:
        ref = MessageRef("orders", 0, 3, Message(topic="orders", body=b"").id)
        samples: dict[str, Any] = {
            "str": "why", "int": 7, "float": 5.0, "str | None": "why", "RetryWord": "never",
            "Mapping[str, str]": {"pk": "x"}, "Mapping[str, Any]": {"pk": {"S": "x"}},
            "MessageRef": ref, "Sequence[str]": ("a:0:0",), "Sequence[MessageRef]": (ref,),
            "Sequence[MessageRef | str]": (ref, "0198"),
            "Sequence[tuple[str, Mapping[str, Any]]]": [("None", {})],
            "FairboxError | None": errors.Throttled("put_item"),
            "Sequence[FieldError]": (FieldError("body", "bytes"),), "int | None": 7,
            "Mapping[str, str] | None": {"Allow": "GET"},
            "Mapping[str, Sequence[str]] | None": {"left": ["a:0:0"]},
        }  # fmt: skip
        for module in pkgutil.walk_packages(fairbox.__path__, "fairbox."):
            importlib.import_module(module.name)
        for cls in tree_of(errors.FairboxError):
            parameters = list(inspect.signature(cls).parameters.values())
            plain = [p for p in parameters if p.kind is p.VAR_POSITIONAL]
            named = {p.name: samples[p.annotation] for p in parameters if p.kind > 2 or not plain}
            error = cls("why") if plain else cls(**named)
            copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
            assert (type(copy), str(copy)) == (cls, str(error))
            assert str(vars(copy)) == str(vars(error))
            assert copy.retry == error.retry


def tree_of(root: type[errors.FairboxError]) -> Iterator[type[errors.FairboxError]]:
    for cls in root.__subclasses__():
        if cls.__module__.startswith("fairbox."):
            yield cls
            yield from tree_of(cls)
