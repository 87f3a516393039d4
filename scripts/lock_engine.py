"""Lock files of the engines, resolved anew: coordinates and hashes, no addresses."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from local.engines import iceberg, installation
from local.workspace import Workspace

HEADER = "# {coordinate} and what it needs at run time; written by scripts/lock_engine.py\n"


ENGINES = (
    (installation.COORDINATE, installation.LOCK_FILE),
    (iceberg.COORDINATE, iceberg.LOCK_FILE),
)


def main() -> None:
    """Resolve and write."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    context = installation.maven(Workspace().engines / "repository")
    for coordinate, lock_file in ENGINES:
        files = installation.resolve(context, coordinate)
        text = HEADER.format(coordinate=coordinate) + "".join(f"{f.line}\n" for f in files)
        lock_file.write_text(text, encoding="utf-8")
        print(f"{len(files)} files locked in {lock_file.name}")


if __name__ == "__main__":
    main()
