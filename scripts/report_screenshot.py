"""Screenshots of a report in headless Chromium, light and dark."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
SCHEMES = {"light": 1, "dark": 0}
SECONDS = 120


def main(arguments: list[str] | None = None) -> int:
    """Write `NAME.png` and `NAME-dark.png`; return 1 on errors of the page, or without browser."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="the report")
    parser.add_argument("--output", type=Path, default=Path("report.png"), help="NAME.png")
    parser.add_argument("--height", type=int, default=1900, help="pixels")
    options = parser.parse_args(arguments)
    browser = next((found for name in NAMES if (found := shutil.which(name))), None)
    if browser is None:
        print("fairbox: Chromium is missing: apt-get install chromium", file=sys.stderr)
        return 1
    for scheme, number in SCHEMES.items():
        output = options.output
        if scheme == "dark":
            output = output.with_name(f"{output.stem}-dark{output.suffix}")
        told = _shoot(browser, options.page.resolve(), output.resolve(), number, options.height)
        complaints = [line for line in told.splitlines() if "CONSOLE" in line]
        if complaints or not output.is_file():
            print(f"fairbox: {scheme}: {complaints or told}", file=sys.stderr)
            return 1
        print(output)
    return 0


def _shoot(browser: str, page: Path, output: Path, scheme: int, height: int) -> str:
    done = subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"),
            *(f"--blink-settings=preferredColorScheme={scheme}", f"--window-size=1400,{height}"),
            *(f"--screenshot={output}", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    return done.stderr


if __name__ == "__main__":
    sys.exit(main())
