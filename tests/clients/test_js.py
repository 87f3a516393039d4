"""The client of feeds in JavaScript: its own tests, and the package that users get."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from fairbox_cdk.node import bin_folder

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clients/js"
GUIDE = ROOT / "docs/how-to/feeds-in-a-browser.md"


def run(*command: str | Path) -> str:
    """Return what a command of Node prints; it has to succeed."""
    environment = os.environ | {"PATH": f"{bin_folder()}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=FOLDER, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_tests_pass() -> None:
    report = run("node", "--test", "--test-reporter=tap", "test/*.test.ts")
    [passed] = re.findall(r"^# pass (\d+)$", report, re.MULTILINE)
    assert int(passed) > 50, "all vectors, and its own"


def test_the_package_has_the_client_and_the_types_of_the_guide(tmp_path: Path) -> None:
    run("node_modules/.bin/tsc", "--project", "tsconfig.build.json", "--outDir", tmp_path)
    module = tmp_path / "fairbox-feeds.js"
    assert run("node", "-p", f"Object.keys(require({str(module)!r}))") == "[ 'FeedClient' ]\n"

    snippets = re.findall(r"^```ts\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    user = tmp_path / "user.ts"
    user.write_text("\n".join(snippets).replace('"fairbox-feeds"', '"./fairbox-feeds.js"'))
    run(
        "node_modules/.bin/tsc",
        "--ignoreConfig",
        "--strict",
        "--noEmit",
        "--target",
        "ES2022",
        user,
    )
