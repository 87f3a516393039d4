"""Audit of the locks: known vulnerabilities, by pip-audit over versions and hashes."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = (
    "layers/dependencies/requirements.lock",
    "pipeline/requirements.lock",
    "requirements.lock",
)
"""Locks of the functions, of the pipeline's jobs, and of the tools that build and test both."""
VULNERABLE: Final = 1
NOT_AUDITED: Final = 2
_UNREACHABLE: Final = (
    "ConnectionError",
    "ConnectionRefusedError",
    "ConnectTimeout",
    "Could not connect to",
    "Connection refused",
    "Max retries exceeded",
    "NameResolutionError",
    "ProxyError",
    "ReadTimeout",
    "ServiceError",
    "Tunnel connection failed",
    "Failed to resolve",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit each lock; return 0: nothing known, 1: vulnerabilities, 2: no answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("locks", nargs="*", default=LOCKS, help="files (%(default)s)")
    parser.add_argument(
        "--service", choices=("osv", "pypi"), default="osv", help="whom to ask (%(default)s)"
    )
    parser.add_argument("--timeout", type=int, default=15, help="seconds (%(default)s)")
    chosen = parser.parse_args(arguments)
    worst = 0
    for lock in chosen.locks:
        code = audit(ROOT / lock, chosen.service, chosen.timeout)
        worst = max(worst, code)
        if code == NOT_AUDITED:
            break
    return worst


def audit(lock: Path, service: str, timeout: int) -> int:
    """Audit one lock; print the findings, or that there was no answer."""
    command = [
        *(sys.executable, "-m", "pip_audit", "--requirement", str(lock), "--require-hashes"),
        *("--disable-pip", "--progress-spinner", "off", "--vulnerability-service", service),
        *("--timeout", str(timeout)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = f"{done.stdout}\n{done.stderr}".strip()
    name = str(lock.relative_to(ROOT)) if lock.is_relative_to(ROOT) else str(lock)
    if done.returncode == 0 and "No known vulnerabilities found" in said:
        print(f"fairbox: {name}: no known vulnerabilities")
        return 0
    if "known vulnerabilit" in said and "ID" in done.stdout:
        print(f"fairbox: {name}: known vulnerabilities\n{done.stdout.strip()}")
        return VULNERABLE
    why = next((word for word in _UNREACHABLE if word in said), None)
    last = said.splitlines()[-1] if said else "no word"
    what = f"service {service} cannot be reached" if why else f"pip-audit failed: {last}"
    print(f"fairbox: {name}: NOT audited: {what}", file=sys.stderr)
    return NOT_AUDITED


if __name__ == "__main__":
    sys.exit(main())
