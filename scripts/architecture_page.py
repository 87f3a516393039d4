"""The architecture page: the tree and the layers from the code, four journeys step by step."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
LIBRARY: Final = ROOT / "layers/fairbox/python/fairbox"

FOLDERS: Final = {
    "layers/fairbox/python/fairbox": "the library; the rest of this page is about it",
    "functions": "one folder a Lambda function: a handler parses an event and calls one use case",
    "stacks": "the CDK stacks: components build resources, stacks connect them",
    "pipeline": "the Spark jobs over the archive, a workspace member of its own",
    "simulation": "the deterministic simulation, a workspace member of its own",
    "local": "the local application: runs the synthesised stacks on this machine",
    "benchmarks": "costs, throughput and latency, measured",
    "scripts": "generators of reference pages, and checks",
    "tests": "the tests; `tests/unit` has a folder for each package of the library",
    "docs": "the documentation",
}
"""The top folders of the repository, and a sentence about each."""


@dataclass(frozen=True, slots=True)
class Journey:
    """A journey through the library.

    Attributes:
        name: its name in `scripts/trace_journey.py`.
        title: the heading.
        steps: file below the package and a sentence about its part, in order.
    """

    name: str
    title: str
    steps: Sequence[tuple[str, str]]


JOURNEYS: Final[Sequence[Journey]] = (
    Journey(
        "publish",
        "Publish: a message into the outbox",
        (
            ("client/publishing.py", "`Outbox.add` and `transact_items` take a message."),
            (
                "dynamodb/topic_copies.py",
                "The producer's copy of the topic is at most 30 s old.",
            ),
            ("model/epochs.py", "The id's time chooses the epoch, a hash chooses the shard."),
            ("codec/messages.py", "The message becomes an item; `codec/keys.py` makes its key."),
            ("dynamodb/message_inserts.py", "The item becomes a conditional put, or an action."),
            ("dynamodb/calls.py", "DynamoDB is called, with retries and translated errors."),
        ),
    ),
    Journey(
        "relay",
        "Relay: one record from the stream to its destinations",
        (
            ("dispatch/relay.py", "`functions/relay` hands over a batch of stream records."),
            ("codec/stream_records.py", "Each record becomes a stored message and its place."),
            ("dynamodb/delivery_store.py", "The copy of the topics is compared: 1 RRU."),
            (
                "dispatch/dispatcher.py",
                "`Dispatcher.deliver` lists a job for each subscription that lacks a message.",
            ),
            (
                "dispatch/sending/circuit_breakers.py",
                "Circuits, pauses and rates admit a job or hold it back.",
            ),
            (
                "dispatch/fair/cycles.py",
                "Deficit round-robin orders the calls (`dispatch/fair/pending_work.py`).",
            ),
            ("dispatch/sending/sender.py", "The destinations are called, in parallel."),
            ("dispatch/decisions.py", "Each outcome becomes a delete, a retry or a dead letter."),
            ("dynamodb/lanes.py", "Delivered messages are deleted in batches: 1 WRU a message."),
            (
                "dispatch/relay.py",
                "A message that must wait gets a doorbell, which enqueues a visit.",
            ),
        ),
    ),
    Journey(
        "marking",
        "Marking: one removal into ledger, archive and counts",
        (
            ("dispatch/stream/marking.py", "`functions/mark_delivered` hands over a window."),
            ("codec/stream_records.py", "Each record becomes a change of a message."),
            ("dispatch/stream/message_events.py", "A change becomes events for the archive."),
            ("codec/ledger.py", "Deliveries of one time and topic share a ledger row."),
            ("dynamodb/shard_rows.py", "Each shard's row is read once."),
            (
                "codec/shards.py",
                "The counts are stored with a sequence number: a repeated record counts once.",
            ),
        ),
    ),
    Journey(
        "acks",
        "Acks: the items of a batch to its one completion",
        (
            ("client/batch_changes.py", "`Batches.ack` takes item ids."),
            ("batches/settlement.py", "The ids are checked against the leaves that issued them."),
            ("dynamodb/batches.py", "One conditional write sets the bits of each leaf."),
            ("batches/cascade.py", "A full leaf clears its bit in the node above, up to the root."),
            (
                "client/publishing.py",
                "The transaction that ends the root contains the completion message: exactly one.",
            ),
            (
                "client/batch_maintenance.py",
                "`functions/cascade_batches` repeats from the stream whatever a crash cut off.",
            ),
        ),
    ),
)


def parts(note: str, table: Callable[..., str]) -> Iterator[str]:
    """Yield the page's parts.

    Args:
        note: the line that names the generator.
        table: makes a Markdown table of a head and rows.
    """
    yield "# Architecture"
    yield note
    yield (
        "Fairbox is a library with thin Lambda functions around it: use cases in the middle,"
        " adapters of AWS above them, and models without I/O below. This page shows the folders,"
        " the packages, the imports that are allowed, and four journeys through the code."
        " [CONTRIBUTING](../../CONTRIBUTING.md) says where a change belongs, and the"
        " [glossary](../glossary.md) defines the words."
    )
    yield "## Folders of the repository"
    yield table(("folder", "content"), [(f"`{path}/`", text) for path, text in FOLDERS.items()])
    yield "## Packages of the library"
    yield table(("package", "content"), [(f"`{name}`", text) for name, text in packages()])
    yield "## Allowed imports"
    yield (
        "A package may import the packages of the rows below its own, never those above; packages"
        " in one row do not import each other. `make lint` checks this with the contracts in"
        " `pyproject.toml`, from which this table is made. A new package without a row fails."
    )
    yield table(
        ("row", "packages"),
        [
            (str(n), ", ".join(f"`{name.strip()}`" for name in row.split("|")))
            for n, row in enumerate(contract("layers")["layers"], start=1)
        ],
    )
    yield "\n".join(_other_contracts())
    yield "## Journeys"
    yield (
        "The files are those that run, and `scripts/trace_journey.py` prints how many files,"
        " functions and changes of file each journey takes; a test bounds them."
    )
    for journey in JOURNEYS:
        yield f"### {journey.title}"
        yield "\n".join(
            f"{n}. `{file}`: {text}" for n, (file, text) in enumerate(journey.steps, start=1)
        )


def packages() -> Iterator[tuple[str, str]]:
    """Yield every package and root module of the library with its docstring's first sentence."""
    for path in sorted(LIBRARY.rglob("*.py")):
        below = path.relative_to(LIBRARY)
        if below.name == "__init__.py" and len(below.parts) > 1:
            yield below.parent.as_posix(), _sentence(path)
        elif len(below.parts) == 1 and below.name != "__init__.py":
            yield below.name, _sentence(path)


def contract(name: str) -> dict[str, Any]:
    """Return the import contract with this id."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = tables["tool"]["importlinter"]["contracts"]
    return next(found for found in contracts if found["id"] == name)


def _other_contracts() -> Iterable[str]:
    sdk = contract("sdk")
    sources = [f"`{name.removeprefix('fairbox.')}`" for name in sdk["source_modules"]]
    yield f"- {sdk['name']}: {', '.join(sources)} do not import `boto3` or `botocore`."
    yield f"- {contract('workspace')['name']}; only `fairbox simulate` imports the simulation."
    yield f"- {contract('siblings')['name']}: no package and no folder of modules has a circle."


def _sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")
