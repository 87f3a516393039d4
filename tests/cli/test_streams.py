"""Standard streams of any encoding, or closed: what is printed, and what is read."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fairbox.cli import __main__, commands

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli_runs import Cli


@pytest.fixture
def process(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Process:
    monkeypatch.setattr(commands, "EnvironmentClients", cli.open)
    return Process(cli)


class Process:
    """Runs `fairbox` as its process does, over bytes."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli

    def __call__(self, *words: str, encoding: str, stdin: bytes = b"") -> tuple[object, str, str]:
        """Return exit code, output and errors."""
        pipes = {"stdin": io.BytesIO(stdin), "stdout": io.BytesIO(), "stderr": io.BytesIO()}
        with pytest.MonkeyPatch.context() as patch:
            for name, pipe in pipes.items():
                patch.setattr(sys, name, io.TextIOWrapper(pipe, encoding))
            patch.setattr(sys, "argv", ["fairbox", *words])
            with pytest.raises(SystemExit) as ended:
                __main__.main()
            sys.stdout.flush()
            sys.stderr.flush()
            out, err = (pipes[name].getvalue().decode(encoding) for name in ("stdout", "stderr"))
        return ended.value.code, out, err


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "cp437", "utf-8"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("message", "list", "orders"), 0),
        (("message", "show", "{ref}"), 0),
        (("queue", "receive", "orders"), 0),
        (("message", "list", "--help"), 0),
        (("topic", "show", "é→日"), 1),
        (("é→日",), 2),
    ],
)
def test_output_escapes_what_its_encoding_lacks(
    process: Process, encoding: str, words: tuple[str, ...], code: int
) -> None:
    process.cli.ok("topic", "create", "orders")
    sent = ("orders", '{"é": "→日"}', "--partition-key", "é→日")
    ref = process.cli.ok("message", "send", *sent).out.strip()
    ended, out, err = process(*(word.format(ref=ref) for word in words), encoding=encoding)
    assert ended == code
    if "--help" not in words and words[:2] != ("topic", "show"):
        escaped = "→".encode(encoding, "backslashreplace").decode(encoding)
        assert escaped in out + err


def test_ids_are_utf_8_with_or_without_a_mark_whatever_the_locale(
    process: Process, tmp_path: Path
) -> None:
    ids = [f"{process.cli.opened(1)}:0:0" for _ in range(2)]
    good = "\n".join(f"\ufeff{item}" for item in ids).encode()
    done = process("batch", "ack", "-", encoding="cp1252", stdin=good)
    assert done == (0, "2 of 2 items changed\n", "")
    (tmp_path / "ids").write_bytes(good)
    assert process("batch", "ack", "-f", str(tmp_path / "ids"), encoding="cp1252")[0] == 0
    wrong = "item ids: expected lines of UTF-8; line 2 is none"
    for bad in (b"\n\xff", b"\n\x81"):
        told = process("batch", "ack", "-", encoding="cp1252", stdin=bad)
        assert told == (2, "", f"fairbox: {wrong}\n")
    lines = f"\ufefftopic list\nbatch ack {ids[0]}\n".encode()
    assert process("shell", encoding="cp1252", stdin=lines)[0] == 0


@pytest.mark.parametrize("words", ["--version", "message list --help", "shell <&-", "--help >&-"])
def test_a_stream_that_is_full_or_closed_makes_one_line(words: str) -> None:
    full = "" if "&" in words else ">/dev/full"
    command = f"{sys.executable} -m fairbox.cli {words} {full}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    told = "fairbox: [Errno 28] No space left on device\n"
    assert (done.returncode, done.stderr) == ((1, told) if full else (0, ""))
