"""Write the stored and sent data of this release for every later release.

Run once for each release, before its tag: afterwards `--unreleased` is wrong, and no test sees it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.releases.folder import CHECKSUMS, RELEASES, checksums, contents, text_of, version
from tests.releases.world import build

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the folder of the version in `layers/fairbox/pyproject.toml`; return 1 if it exists."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--unreleased", action="store_true", help="write again what nobody has installed yet"
    )
    again = parser.parse_args(arguments).unreleased
    folder = RELEASES / version()
    if folder.exists() and not again:
        print(f"{folder.name} has its fixtures: raise the version first", file=sys.stderr)
        return 1
    files = contents(build())
    folder.mkdir(parents=True, exist_ok=again)
    for name, content in files.items():
        (folder / name).write_text(text_of(content))
    (folder / CHECKSUMS).write_text(checksums(folder))
    print(f"wrote {folder.relative_to(RELEASES.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
