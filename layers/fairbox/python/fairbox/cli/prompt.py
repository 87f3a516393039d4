"""The prompt of the shell: completion, history, keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from fairbox.settings import state_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document


class _Words(Completer):
    """Completes with the words that may follow those before."""

    def __init__(self, words: Callable[[list[str]], Iterable[str]]) -> None:
        self._words = words

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterator[Completion]:
        """Yield the words that begin as the one at the cursor does."""
        before = document.text_before_cursor
        begun = "" if not before or before[-1].isspace() else before.split()[-1]
        whole = before[: len(before) - len(begun)].split()
        for word in self._words(whole):
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


def prompted(
    run: Callable[[str], object],
    prompt: Callable[[], str],
    words: Callable[[list[str]], Iterable[str]],
) -> None:
    """Run lines from the terminal until Ctrl-D or `exit`; Ctrl-C clears line or verb.

    Args:
        run: runs a line.
        prompt: the text before a line.
        words: the words that may follow those of a line.
    """
    session: PromptSession[str] = PromptSession(
        completer=_Words(words), history=_history(), complete_while_typing=False
    )
    while True:
        try:
            run(session.prompt(prompt()))
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
