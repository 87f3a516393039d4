"""Doubles stand where AWS stands, or a receiver does, never where our own code does.

A double of our own code has the faults that its author thinks of: the doorbells in memory
deduplicated by themselves, for ever, and hid for as long that the shipped ones did not.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import fairbox
import fairbox.testing
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[2]
CALLERS = ("benchmarks", "simulation", "tests", "local")
"""Folders whose classes may not implement the port of doorbells either."""

DOUBLES = {
    "MemoryDestination": "a receiver of messages, which is not ours",
    "MemoryDestinations": "opens these receivers in place of AWS's and of webhooks",
    "MemoryBodies": "the bucket of bodies; `S3Bodies` has its tests against moto",
    "MemoryArchive": "the stream of Firehose; `FirehoseArchive` has its tests against a server",
    "MemoryGivenUp": "the bucket of given-up batches; `S3Failures` has its tests against moto",
    "MemoryAcks": "the ack queue, which neither deduplicates nor delays nor orders",
    "ManualClock": "time, which is a parameter everywhere",
}
"""Classes of `fairbox.testing` that implement a port of ours, each with its reason."""

SENDERS = {
    "benchmarks/metrics.py: _Services": "keeps what is sent, and gives none of it again",
    "simulation/fairbox_simulation/doorbell_function.py: FusedSqs": "faults over the model",
    "simulation/fairbox_simulation/load/functions.py: _Sqs": "losses over the model",
    "tests/functions/running.py: FakeSqs": "keeps what is sent; `receive_message` finds nothing",
    "tests/support/lambda_events.py: Aws": "keeps what is sent",
    "tests/unit/aws/test_doorbells_apart.py: Sqs": "keeps what is sent, with its group",
    "tests/unit/destinations/test_queues_and_topics.py: Refusing": "raises",
    "tests/unit/dispatch/maintenance/test_sweep_of_many.py: Overdue": "times the model's calls",
    "tests/unit/dispatch/stream/test_message_acks.py: Sqs": "keeps what is sent, or fails",
}
"""Classes beside the model of SQS that take messages; none of them is a queue."""


def modules_of(package: Any, *, without: str = "") -> Iterator[Any]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        skipped = (without and found.name.startswith(without)) or found.name.endswith("__main__")
        if not skipped:
            yield importlib.import_module(found.name)


def classes_of(modules: Iterable[Any]) -> dict[str, type]:
    return {
        f"{module.__name__}.{name}": found
        for module in modules
        for name, found in vars(module).items()
        if inspect.isclass(found) and found.__module__ == module.__name__
    }


@cache
def ports() -> dict[str, dict[str, list[str]]]:
    """Return the public methods of every protocol of the library, with their parameters."""
    found = {}
    for name, port in classes_of(modules_of(fairbox, without="fairbox.testing")).items():
        if Protocol in port.__bases__:
            methods = {n: parameters(f) for n, f in vars(port).items() if is_method(n, f)}
            if any(methods.values()):  # a name alone says too little
                found[name] = methods
    return found


def is_method(name: str, value: object) -> bool:
    return inspect.isfunction(value) and not name.startswith("_")


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def implemented(double: type) -> list[str]:
    """Return the ports of which a class has every method, and at least one that is not inherited.

    A class that inherits them from the library is the library's.
    """
    own = {n for n, f in vars(double).items() if is_method(n, f)}
    return [
        port
        for port, methods in ports().items()
        if methods.keys() & own
        and all(
            callable(method := getattr(double, name, None)) and parameters(method) == expected
            for name, expected in methods.items()
        )
    ]


def doubles(package: Any = fairbox.testing) -> dict[str, list[str]]:
    return {
        double.__name__: found
        for double in classes_of(modules_of(package)).values()
        if Protocol not in double.__bases__ and (found := implemented(double))
    }


def test_testing_implements_the_interfaces_of_aws_alone_but_for_named_exceptions() -> None:
    found = {name: ports for name, ports in doubles().items() if name not in DOUBLES}
    assert not found, "these stand where the library's own code stands"
    assert DOUBLES.keys() == doubles().keys(), "an exception that is none any more"


def test_a_double_of_the_doorbells_is_found() -> None:
    class MemoryDoorbells:
        def ring(self, doorbells: Any) -> None:
            """Keep the doorbells."""

    assert "fairbox.dispatch.ports.Doorbells" in implemented(MemoryDoorbells)


def classes_with(folder: Path, method: str, argument: str = "") -> list[str]:
    """Return the classes below a folder that have a method, or one with such an argument."""
    return [
        f"{path.relative_to(folder.parent)}: {node.name}"
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        for function in node.body
        if isinstance(function, ast.FunctionDef)
        and function.name == method
        and argument in {"", *(a.arg for a in function.args.args)}
        and path != Path(__file__)
    ]


@pytest.mark.parametrize("folder", CALLERS)
def test_nobody_makes_doorbells_of_their_own(folder: str) -> None:
    assert classes_with(ROOT / folder, "ring", "doorbells") == []


def test_doorbells_of_ones_own_are_found(tmp_path: Path) -> None:
    code = "class Mine:\n    def ring(self, doorbells):\n        pass\n"
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "case.py").write_text(code, encoding="utf-8")
    assert classes_with(tmp_path / "some", "ring", "doorbells") == ["some/case.py: Mine"]


def test_nobody_makes_queues_of_their_own() -> None:
    found = [c for f in CALLERS for c in classes_with(ROOT / f, "send_message_batch")]
    assert sorted(found) == sorted(SENDERS), "the model of SQS stands in `fairbox.testing.sqs`"
