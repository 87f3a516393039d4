"""Standard streams of any encoding, or closed: what is printed, and what is read."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fairbox.cli import __main__, commands

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli_runs import Cli


def process(
    cli: Cli, *words: str, encoding: str = "cp1252", stdin: bytes = b""
) -> tuple[object, str, str]:
    """Run `fairbox` as its process does, over bytes; return exit code, output and errors."""
    pipes = {"stdin": io.BytesIO(stdin), "stdout": io.BytesIO(), "stderr": io.BytesIO()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "Clients", cli.open)
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
def test_output_escapes_what_its_encoding_lacks(cli: Cli, encoding: str) -> None:
    cli.ok("topic", "create", "orders")
    sent = ("orders", '{"é": "→日"}', "--partition-key", "é→日")
    ref = cli.ok("message", "send", *sent).out.strip()
    escaped = "→".encode(encoding, "backslashreplace").decode(encoding)
    for words in (f"message show {ref}", "message list orders", "queue receive orders"):
        code, out, err = process(cli, *words.split(), encoding=encoding)
        assert (code, escaped in out, err) == (0, True, "")
    assert process(cli, "message", "list", "--help", encoding=encoding)[0] == 0
    assert escaped in process(cli, "é→日", encoding=encoding)[2]


def test_ids_are_utf_8_with_or_without_a_mark_whatever_the_locale(cli: Cli, tmp_path: Path) -> None:
    ids = [f"{cli.opened(1)}:0:0" for _ in range(2)]
    good = "\n".join(f"\ufeff{item}" for item in ids).encode()
    assert process(cli, "batch", "ack", "-", stdin=good) == (0, "2 of 2 items changed\n", "")
    (tmp_path / "ids").write_bytes(good)
    assert process(cli, "batch", "ack", "-f", str(tmp_path / "ids"))[0] == 0
    told = "fairbox: item ids: expected lines of UTF-8; line 2 is none\n"
    for bad in (b"\n\xff", b"\n\x81"):
        assert process(cli, "batch", "ack", "-", stdin=bad) == (2, "", told)
    assert process(cli, "shell", stdin=b"\xef\xbb\xbftopic list\n")[0] == 0


@pytest.mark.parametrize("words", ["--version", "message list --help", "shell <&-", "--help >&-"])
def test_a_stream_that_is_full_or_closed_makes_one_line(words: str) -> None:
    full = "" if "&" in words else ">/dev/full"
    command = f"{sys.executable} -m fairbox.cli {words} {full}"
    done = subprocess.run(
        ["bash", "-c", command],
        env=os.environ | {"PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    told = "fairbox: [Errno 28] No space left on device\n"
    assert (done.returncode, done.stderr) == ((1, told) if full else (0, ""))
