"""Resolves DynamoDB Local anew and writes the lock file: coordinates and hashes, no addresses."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from local import dynamodb_local
from local.workspace import Workspace

HEADER = "# {coordinate} and what it needs at run time; written by scripts/lock_engine.py\n"


def main() -> None:
    """Resolve and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coordinate", default=dynamodb_local.COORDINATE)
    chosen = parser.parse_args()
    context = dynamodb_local.maven(Workspace().engines / "repository")
    files = dynamodb_local.resolve(context, chosen.coordinate)
    text = HEADER.format(coordinate=chosen.coordinate) + "".join(f"{f.line}\n" for f in files)
    dynamodb_local.LOCK_FILE.write_text(text, encoding="utf-8")
    print(f"{len(files)} files locked in {dynamodb_local.LOCK_FILE.name}")


if __name__ == "__main__":
    main()
