"""`fairbox shell`: every verb at a prompt, and short ones for the topic and message at hand."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.exceptions import TyperException

from fairbox.cli.commands import app
from fairbox.cli.session import FAILED, USAGE, Session, printable
from fairbox.errors import FairboxError, InvalidInput, StaleReceipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fairbox import Queue
    from fairbox.cli.library_clients import Clients
    from fairbox.model.messages import MessageRef
    from fairbox.model.receipts import Received

SHORT: Final = {
    "use": "use TOPIC: make it the current topic",
    "receive": "receive [options]: one message of the current topic, and hold it",
    "ack": "ack: the current message is done",
    "nack": "nack [--delay S] [--reason TEXT] [--dead]: it failed",
    "extend": "extend [SECONDS]: hold it for longer, 30 s by default",
    "reset": "reset: give it back as if it had not been received",
    "release": "release: take the current message from whoever holds it",
    "bury": "bury [--reason TEXT]: make it a dead letter, whoever holds it",
    "delete": "delete [--reason TEXT]: take it out of the outbox, whoever holds it",
    "show": "show [REF]: the current message, or another, which is current then",
    "redrive": "redrive: put the current message back from the dead letters",
    "held": "held: what is held",
    "help": "help: this",
    "exit": "exit: leave, as Ctrl-D",
}
_EXTEND_SECONDS: Final = "30"
_SETTLING: Final = ("ack", "nack", "release", "reset", "bury", "delete")


@dataclass(slots=True)
class ShellState:
    """The current topic and message, and the receipts not yet settled.

    Attributes:
        topic: the current topic; empty: none.
        ref: the current message, received or shown; empty: none.
        receipts: the refs of messages that are held, by receipt, in the order of receiving.
    """

    topic: str = ""
    ref: str = ""
    receipts: dict[str, str] = field(default_factory=dict)

    @property
    def receipt(self) -> str | None:
        """The current message's receipt; None: it is not held."""
        return next((r for r, ref in self.receipts.items() if ref == self.ref), None)

    def take(self, received: Iterable[Received]) -> None:
        """Note what was received; the first of it is the current message."""
        from fairbox.model.receipts import Receipt  # noqa: PLC0415 - `fairbox --help` does without

        refs = {one.receipt: str(Receipt.parse(one.receipt).ref) for one in received}
        # who holds a message twice holds it by the newer receipt
        self.receipts = {r: ref for r, ref in self.receipts.items() if ref not in refs.values()}
        self.receipts |= refs
        self.ref = next(iter(refs.values()), self.ref)

    def drop(self, settled: Iterable[str]) -> None:
        """Forget settled or stale receipts, each named by itself or its ref; move on from them."""
        names, before = set(settled), self.receipts
        self.receipts = {r: ref for r, ref in before.items() if not names & {r, ref}}
        # the current message was settled: the oldest that is still held is current then
        if self.ref in before.values() and self.ref not in self.receipts.values():
            self.ref = next(iter(self.receipts.values()), self.ref)


class HoldingQueue:
    """A queue that notes in the shell's state what was received through it and what was settled."""

    def __init__(self, queue: Queue, state: ShellState) -> None:
        self._queue = queue
        self._state = state

    def __getattr__(self, name: str) -> Any:
        """Return what the queue has of this name."""
        call = getattr(self._queue, name)
        return partial(self._settle, call) if name in _SETTLING else call

    def receive(self, *arguments: Any, **options: Any) -> list[Received]:
        """Receive, and note it."""
        received = self._queue.receive(*arguments, **options)
        self._state.take(received)
        return received

    def _settle(
        self,
        call: Callable[..., None],
        settled: list[str] | str | MessageRef,
        *arguments: Any,
        **options: Any,
    ) -> None:
        names = settled if isinstance(settled, list) else [str(settled)]
        try:
            call(settled, *arguments, **options)
        except StaleReceipt:
            self._state.drop(names)  # those that are not stale were settled
            raise
        self._state.drop(names)


class HoldingClients:
    """The clients, with a queue that notes what it holds."""

    def __init__(self, clients: Clients, state: ShellState) -> None:
        self._clients = clients
        self._state = state

    def __getattr__(self, name: str) -> Any:
        """Return what the clients have of this name."""
        return getattr(self._clients, name)

    @property
    def queue(self) -> HoldingQueue:
        """The queue."""
        return HoldingQueue(self._clients.queue, self._state)


class Shell:
    """Runs lines.

    Args:
        session: of the verb `shell`; its clients and its way of printing are the lines' too.
    """

    def __init__(self, session: Session) -> None:
        self.state = ShellState()
        self._session = session
        self._clients = HoldingClients(session.clients, self.state)
        self._own: dict[str, Callable[[list[str]], None]] = {
            "use": self._use,
            "held": self._show_claims,
            "help": self._help,
        }

    @property
    def prompt(self) -> str:
        """The text before a line: the current topic, and the number of messages that are held."""
        mark = f" ({len(self.state.receipts)} held)" if self.state.receipts else ""
        return f"fairbox {self.state.topic}{mark}> ".replace("  ", " ").replace(" >", ">")

    def run(self, line: str) -> int:
        """Run one line; print its error in one line; return its exit code.

        Raises:
            EOFError: the line says `exit`.
        """
        try:
            words = shlex.split(line)
        except ValueError as error:
            return self._failed(f"{str(error).lower()} in this line", USAGE)
        if not words:
            return 0
        if words[0] in ("exit", "quit"):
            raise EOFError

        try:
            own = self._own.get(words[0])
            if own is not None:
                own(words[1:])
                return 0
            return self._verb(self._expanded(words))
        except FairboxError as error:
            return self._failed(str(error), USAGE if isinstance(error, InvalidInput) else FAILED)

    def _verb(self, words: list[str]) -> int:
        if words[0] == "shell":
            return self._failed("this is one", USAGE)
        shared = ["--json"] if self._session.json and len(words) > 1 else []
        try:
            code = app(
                [*words, *shared],
                prog_name="fairbox",
                # else typer would end the process with each line
                standalone_mode=False,
                obj=self._opened,
            )
        except typer.Abort:
            return FAILED
        except TyperException as error:
            text = getattr(error, "format_message", error.__str__)()
            return self._failed(text, USAGE)

        if not code and words[:2] in (["message", "show"], ["dlq", "show"]) and len(words) > 2:
            self.state.ref = next((w for w in words[2:] if "/" in w), self.state.ref)
        return code if isinstance(code, int) else 0

    def _opened(self, url: str | None) -> HoldingClients:
        """Return the shell's clients for a line, which may name no other DynamoDB."""
        own = self._session.clients.endpoint_url
        if url not in (None, own):
            raise InvalidInput("endpoint_url", "that of the shell itself: leave it out")
        return self._clients

    def _failed(self, text: str, code: int) -> int:
        typer.echo(printable(f"fairbox: {' '.join(text.split())}"), err=True)
        return code

    def _expanded(self, words: list[str]) -> list[str]:
        """Return the verb that a short one stands for; other words as they are."""
        short, rest = words[0], words[1:]
        match short:
            case "receive":
                return ["queue", "receive", self._topic(), "-n", "1", *rest]
            case "ack" | "nack" | "reset":
                return ["queue", short, self._receipt(), *rest]
            case "extend":
                return ["queue", "extend", self._receipt(), *(rest or [_EXTEND_SECONDS])]
            case "show" | "release" | "bury" | "delete":
                named = short == "show" and rest
                return ["message", short, *(rest if named else [self._ref(), *rest])]
            case "redrive":
                ref = self._ref()
                return ["dlq", "redrive", ref.partition("/")[0], ref, "--yes", *rest]
        return words

    def _topic(self) -> str:
        if not self.state.topic:
            raise InvalidInput("topic", "a current one: use TOPIC")
        return self.state.topic

    def _ref(self) -> str:
        if not self.state.ref:
            raise InvalidInput("message", "a current one: receive, or show REF")
        return self.state.ref

    def _receipt(self) -> str:
        self._ref()
        receipt = self.state.receipt
        if receipt is None:
            raise InvalidInput("message", f"one that is held; {self.state.ref} is not: receive")
        return receipt

    def _use(self, words: list[str]) -> None:
        if len(words) != 1:
            raise InvalidInput("use", "one topic")
        # a topic that is not there is refused here, not by the next verb
        self._clients.outbox.topic(words[0])
        self.state.topic = words[0]

    def _show_claims(self, _: list[str]) -> None:
        found = ({"ref": ref, "receipt": r} for r, ref in self.state.receipts.items())
        self._session.table(("ref", "receipt"), found)

    def _help(self, _: list[str]) -> None:
        typer.echo("\n".join([*SHORT.values(), "and every verb, as: topic list; topic --help"]))

    def leave(self, *, ask: bool) -> int:
        """Say what is still held, and give it back; a person is asked first."""
        # a copy: giving back changes the original
        receipts = dict(self.state.receipts)
        if not receipts:
            return 0
        typer.echo(f"still held: {', '.join(receipts.values())}", err=True)
        try:
            if ask and not typer.confirm("Give back?", default=True, err=True):
                return 0
            self._clients.queue.release(list(receipts))
        except StaleReceipt as error:
            typer.echo(f"{len(receipts) - len(error.receipts)} given back", err=True)
            return self._failed(str(error), FAILED)
        except (FairboxError, typer.Abort) as error:
            return self._failed(str(error) or "not given back", FAILED)

        typer.echo(f"{len(receipts)} given back", err=True)
        return 0

    def words(self, before: list[str]) -> Iterator[str]:
        """Yield what may come behind these words: verbs, then topics."""
        verbs = _verbs()
        if not before:
            yield from [*SHORT, *verbs]
        elif len(before) == 1 and before[0] in verbs:
            yield from verbs[before[0]]
        elif before[0] in verbs or before == ["use"]:
            try:
                yield from [state.topic.name for state in self._clients.outbox.topics()]
            except FairboxError:
                return  # completion says nothing where the tables are out of reach


def _verbs() -> dict[str, list[str]]:
    from typer.main import get_command  # noqa: PLC0415 - it takes time that `--help` does without

    root: Any = get_command(app)
    return {
        noun: list(group.commands)
        for noun, group in root.commands.items()
        if hasattr(group, "commands")
    }


def shell(session: Session) -> None:
    """Run every verb at a prompt, or from standard input, a line each.

    It holds a current topic (`use TOPIC`) and a current message, received or shown, for which there
    are short verbs: `receive`, `ack`, `nack`, `extend`, `reset`, `release`, `bury`, `delete`,
    `show`, `redrive`; `help` lists them. On a terminal it completes words and remembers lines;
    Ctrl-C clears the line. At the end it says what it still holds, and gives it back: on a terminal
    it asks.
    """
    made = Shell(session)
    tty = sys.stdin.isatty()
    code = 0

    if tty:
        from fairbox.cli.prompt import prompted  # noqa: PLC0415 - it is slow, and needed here

        prompted(made.run, lambda: made.prompt, made.words)
    else:
        for line in sys.stdin:
            try:
                # a script goes on behind a failed line, and ends with the last code that failed
                code = made.run(line.removeprefix("\ufeff")) or code
            except EOFError:
                break

    left = made.leave(ask=tty)
    if code or left:
        raise typer.Exit(code or left)
