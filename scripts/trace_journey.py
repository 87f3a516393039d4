"""Traces four journeys through the library: publish, relay, marking and acks.

Each journey runs on `MemoryApplication`, which is the library's own code over tables in memory, and
for each of them the script prints:

- files: distinct source files of the library that ran;
- functions: distinct functions of the library that ran, lambdas and generator expressions included.
  Other comprehensions belong to the function around them, because newer Pythons inline them;
- changes: changes of file, in both directions. A call into another file is one and its return is
  another; a generator is called and returns at each of its steps. Calls through the standard
  library count as if they were direct, such as the key function of a sort;
- depth: the largest number of library frames on the stack at one time.

Three things are not counted: the double (`fairbox/testing`, and what it calls when the library has
called it), the top levels of modules, and methods that dataclasses generate, because they have no
file. Each journey runs three times, and the third run is counted: imports and caches are warm. Two
seconds pass between runs, so that the process compares its copy of the topics with the table, as a
function does whose invocations are seconds apart.

Examples:
    python scripts/trace_journey.py
    python scripts/trace_journey.py --json
    python scripts/trace_journey.py --library ../older/layers/fairbox/python
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, FrameType

ROOT: Final = Path(__file__).resolve().parent.parent
LIBRARY: Final = ROOT / "layers/fairbox/python"
_WARM_UPS: Final = 2
_SECONDS_BETWEEN: Final = 2.0
_INLINED: Final = ("<listcomp>", "<setcomp>", "<dictcomp>")
_DRIVER: Final = "testing/application.py"


@dataclass(frozen=True, slots=True)
class Figures:
    """The size of one journey; the module's docstring defines each figure."""

    files: int
    functions: int
    changes: int
    depth: int


@dataclass
class Tracer:
    """A profile function that follows the library's frames.

    Args:
        package: the folder of the package `fairbox`.
    """

    package: Path
    calls: dict[CodeType, int] = field(default_factory=dict)
    transitions: dict[tuple[str, str], int] = field(default_factory=dict)
    depth: int = 0
    _stack: list[str] = field(default_factory=list)
    _double: int = 0
    _files: dict[CodeType, str | None] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Follow one call or return."""
        if event not in ("call", "return"):
            return
        code = frame.f_code
        file = self._file(code)
        if file is None:
            return
        if file.startswith("testing/"):
            # the application's own methods only drive; all else of the folder is the double
            if self._double or self._stack or file != _DRIVER:
                self._double += 1 if event == "call" else -1
        elif not self._double:
            before = self._stack[-1] if self._stack else file
            if event == "call":
                self.calls[code] = self.calls.get(code, 0) + 1
                self._stack.append(file)
                self.depth = max(self.depth, len(self._stack))
                after = file
            else:
                self._stack.pop()
                after = self._stack[-1] if self._stack else file
            if after != before:
                self.transitions[before, after] = self.transitions.get((before, after), 0) + 1

    def figures(self) -> Figures:
        """Return what was counted."""
        files = {self._files[code] for code in self.calls}
        return Figures(len(files), len(self.calls), sum(self.transitions.values()), self.depth)

    def functions(self) -> list[tuple[str, str, int]]:
        """Return (file, function, calls) of each function, in the order of their first calls."""
        return [(self._files[c] or "", c.co_qualname, n) for c, n in self.calls.items()]

    def _file(self, code: CodeType) -> str | None:
        """Return the file below the package that a function is counted for; None: not counted."""
        if code not in self._files:
            path = Path(code.co_filename)
            library = path.is_relative_to(self.package)
            counted = library and code.co_name not in (*_INLINED, "<module>")
            self._files[code] = path.relative_to(self.package).as_posix() if counted else None
        return self._files[code]


class Journeys:
    """The four journeys over one application in memory."""

    def __init__(self) -> None:
        from fairbox import Message, Subscription, Topic  # noqa: PLC0415 - --library chooses it
        from fairbox.testing.application import MemoryApplication  # noqa: PLC0415

        self._message = Message
        self._app: Any = MemoryApplication()
        self._app.outbox.create_topic(Topic("orders"))
        self._app.outbox.add_subscription(Subscription("orders", "billing", "sqs:billing"))
        self._app.clock.advance(60)

    def publish(self) -> Callable[[], None]:
        """Prepare `Outbox.add` of one message, and `transact_items` of another."""
        app = self._app
        one, other = self._new(), self._new()

        def run() -> None:
            app.outbox.add(one)
            app.outbox.transact_items(other)

        return run

    def relay(self) -> Callable[[], None]:
        """Prepare one inserted message's way through the relay, until it is sent and deleted."""
        self._app.outbox.add(self._new())
        return self._app.relay  # type: ignore[no-any-return]

    def marking(self) -> Callable[[], None]:
        """Prepare the marking of one delivered message's removal."""
        self._app.outbox.add(self._new())
        self._app.mark()
        self._app.relay()
        return self._app.mark  # type: ignore[no-any-return]

    def acks(self) -> Callable[[], None]:
        """Prepare the acks of a batch of four items in two groups, and what its end asks for."""
        app = self._app
        app.cascade()
        batch = app.batches.open().id
        groups = app.batches.add(batch, 4, request_id="r", group_size=2)
        app.batches.seal(batch)
        items = [item for group in groups for item in group.item_ids()]

        def run() -> None:
            app.batches.ack(items[:1])
            app.batches.ack(items[1:])
            app.cascade()

        return run

    def settle(self) -> None:
        """Let everything run, check that nothing is left, and let time pass before the next run."""
        self._app.run()
        if next(iter(self._app.outbox.outstanding("orders")), None) is not None:
            raise RuntimeError("a message was not delivered")
        self._app.clock.advance(_SECONDS_BETWEEN)

    def _new(self) -> Any:
        return self._message(topic="orders", body=b'{"order": 7}', id=self._app.ids.next())


JOURNEYS: Final = ("publish", "relay", "marking", "acks")


def trace(name: str, package: Path) -> Tracer:
    """Run a journey until it is warm, then once more under the tracer, and return that."""
    journeys = Journeys()
    for _ in range(_WARM_UPS):
        getattr(journeys, name)()()
        journeys.settle()
    run = getattr(journeys, name)()
    tracer = Tracer(package)
    sys.setprofile(tracer)
    try:
        run()
    finally:
        sys.setprofile(None)
    journeys.settle()
    return tracer


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of the four journeys."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--library", type=Path, default=LIBRARY, help="the folder that holds `fairbox`"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--show", choices=JOURNEYS, help="list a journey's functions and its changes of file"
    )
    chosen = parser.parse_args(arguments)
    library = chosen.library.resolve()
    sys.path.insert(0, str(library))
    tracers = {name: trace(name, library / "fairbox") for name in JOURNEYS}
    figures = {name: asdict(tracer.figures()) for name, tracer in tracers.items()}
    if chosen.json:
        print(json.dumps(figures, indent=2))
    elif chosen.show:
        print(_details(tracers[chosen.show]))
    else:
        print(f"{'':8} {'files':>6} {'functions':>10} {'changes':>8} {'depth':>6}")
        for name, counted in figures.items():
            print("{:8} {:6} {:10} {:8} {:6}".format(name, *counted.values()))
    return 0


def _details(tracer: Tracer) -> str:
    functions = [f"{calls:4}  {file}  {name}" for file, name, calls in tracer.functions()]
    changes = sorted(tracer.transitions.items(), key=lambda item: (-item[1], item[0]))
    moves = [f"{count:4}  {before} -> {after}" for (before, after), count in changes]
    return "\n".join([*functions, "", *moves])


if __name__ == "__main__":
    raise SystemExit(main())
