"""The prompt of the shell: completion, history, keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from fairbox.settings import state_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document


class Lines(Protocol):
    """The shell, as its prompt uses it."""

    @property
    def prompt(self) -> str:
        """The text before a line."""

    def run(self, line: str) -> int:
        """Run one line; return its exit code."""

    def words(self, before: list[str]) -> Iterable[str]:
        """Return the words that may follow those."""


class _Words(Completer):
    """Completes with the words that the shell offers."""

    def __init__(self, shell: Lines) -> None:
        self._shell = shell

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterator[Completion]:
        """Yield the words that begin as the one at the cursor does."""
        before = document.text_before_cursor
        begun = "" if not before or before[-1].isspace() else before.split()[-1]
        whole = before[: len(before) - len(begun)].split()
        for word in self._shell.words(whole):
            if word.startswith(begun):
                yield Completion(word, start_position=-len(begun))


def _history() -> History:
    folder = state_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "history"
        # lines may have bodies and keys of customers: nobody else may read them
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()  # a shell without memory is better than none
    return FileHistory(str(file))


def prompted(shell: Lines) -> None:
    """Run lines from the terminal until Ctrl-D or `exit`; Ctrl-C clears line or verb."""
    session: PromptSession[str] = PromptSession(
        completer=_Words(shell), history=_history(), complete_while_typing=False
    )
    while True:
        try:
            shell.run(session.prompt(shell.prompt))
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
