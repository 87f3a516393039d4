"""Build of the package with which EMR Serverless starts the jobs, into build/pipeline."""

from __future__ import annotations

import argparse
import sys
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairbox_cdk.assets import AssetError
from fairbox_cdk.packages import build_package

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str] | None = None) -> int:
    """Print each part with its size and digest; equal sources give equal parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "pipeline")
    try:
        package = build_package(ROOT, parser.parse_args(arguments).output)
    except AssetError as error:
        print(f"fairbox: {error}", file=sys.stderr)
        return 1
    for part in (package.entry, package.code, package.environment):
        content = part.read_bytes()
        print(f"{len(content):>11}  {sha256(content).hexdigest()[:16]}  {part}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
