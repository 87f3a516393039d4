"""Write the reference page of licences from the locked environment, or check it (`--check`)."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs/reference/licences.md"
LAYER: Final = "layers/dependencies/requirements.lock"
SHIPPED: Final = {
    "the layer of the functions": LAYER,
    "the pipeline's jobs": "pipeline/requirements.lock",
}
ALLOWED: Final = frozenset(
    [
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0"),
        *("PSF-2.0", "Python-2.0", "Zlib"),
    ]
)
"""Licences that may be shipped: they only require that their text is included."""
ACCEPTED: Final = {
    "orjson": "MPL-2.0 asks for the source of its own files, if changed; they are not",
    "pygal": "the LGPL lets a library be used where it can be replaced; it is shipped unchanged",
}
"""Packages of the pipeline's jobs under other licences, each with the reason."""
_NAMES: Final = {
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache license version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache software license 2.0": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "isc license (iscl)": "ISC",
    "gnu lesser general public license v3 or later (lgplv3+)": "LGPL-3.0-or-later",
    "mit license": "MIT",
    "mit no attribution license (mit-0)": "MIT-0",
    "mit-0": "MIT-0",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "psf": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
}
_PINNED: Final = re.compile(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", re.MULTILINE)
_TOKEN: Final = re.compile(r"[()]|[^\s()]+")
_LONGEST: Final = 60  # beyond it the field holds the text of a licence, not its name


@dataclass(frozen=True)
class Package:
    """A locked package; `licence` is an SPDX expression, or the text of its metadata."""

    name: str
    version: str
    licence: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; with `--check` write nothing, and return 1 when it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    chosen = parser.parse_args(arguments)
    text = page()
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    if chosen.check:
        print(f"{PAGE.name}: stale: run scripts/write_licences.py")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.name}: written")
    return 0


def locked(lock: str) -> list[tuple[str, str]]:
    """Return the packages and versions of a lock, ascending."""
    return sorted(_PINNED.findall((ROOT / lock).read_text(encoding="utf-8")))


def package(name: str, version: str) -> Package:
    """Return a package's own metadata, or those on the page if it is not installed.

    Some are for other systems or other releases of Python.
    """
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return Package(name, version, _known(name, version) or "not installed here")
    return Package(name, version, licence_of(about))


def _known(name: str, version: str) -> str | None:
    row = re.compile(rf"^\| {re.escape(name)} \| {re.escape(version)} \| (.+) \|$", re.MULTILINE)
    found = row.search(PAGE.read_text(encoding="utf-8")) if PAGE.is_file() else None
    return found[1] if found else None


def licence_of(about: metadata.PackageMetadata) -> str:
    """Return the licence of a package's metadata: its expression, its classifiers, or its name."""
    expression = _field(about, "License-Expression")
    if expression:
        return expression
    prefix = "License :: "
    classified = [
        _named(value.rpartition(" :: ")[2])
        for value in about.get_all("Classifier") or []
        if value.startswith(prefix) and value != "License :: OSI Approved"
    ]
    if classified:
        return " OR ".join(dict.fromkeys(classified))
    text = _field(about, "License")
    return _named(text) if text and len(text) <= _LONGEST and "\n" not in text else "unknown"


def _field(about: metadata.PackageMetadata, name: str) -> str:
    return str((about.get_all(name) or [""])[0]).strip()


def may_be_shipped(licence: str) -> bool:
    """Whether an SPDX expression can be met by allowed licences alone; AND binds before OR."""
    tokens = _TOKEN.findall(licence)

    def choices() -> bool:
        met = [parts()]
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            met.append(parts())
        return any(met)

    def parts() -> bool:
        met = [part()]
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            met.append(part())
        return all(met)

    def part() -> bool:
        first = tokens.pop(0) if tokens else ""
        if first != "(":
            return first in ALLOWED
        met = choices()
        return bool(tokens) and tokens.pop(0) == ")" and met

    return choices() and not tokens  # what is left over is no expression


def page() -> str:
    """Return the page."""
    shipped = {name for lock in SHIPPED.values() for name, _ in locked(lock)}
    rest = [pair for pair in locked("requirements.lock") if pair[0] not in shipped]
    parts = [
        "# Licences\n\n*Written by `scripts/write_licences.py` from the locks and the packages' own"
        " metadata.*\n\nFairbox is under Apache-2.0. What is shipped with it is under one of: "
        + ", ".join(sorted(ALLOWED))
        + "; a test holds it to that. `make audit` asks for known vulnerabilities of all of it.\n\n"
        "Two packages of the pipeline's jobs are under others:\n\n"
        + "".join(f"- `{name}`: {reason}\n" for name, reason in ACCEPTED.items())
    ]
    for what, lock in SHIPPED.items():
        parts.append(f"## Shipped: {what}\n\n{_table(locked(lock))}")
    parts.append(
        "## Not shipped\n\nWhat builds, tests and runs Fairbox on a developer's machine, and what"
        f" AWS brings itself: the SDK, Spark.\n\n{_table(rest)}"
    )
    return "\n".join(parts)


def _table(pairs: Iterable[tuple[str, str]]) -> str:
    rows = [package(name, version) for name, version in pairs]
    lines = ["| package | version | licence |", "|---|---|---|"]
    lines += [f"| {one.name} | {one.version} | {one.licence.replace('|', '/')} |" for one in rows]
    return "\n".join(lines) + "\n"


def _named(text: str) -> str:
    return _NAMES.get(text.strip().lower(), text.strip())


if __name__ == "__main__":
    sys.exit(main())
