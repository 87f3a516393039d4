"""The OpenAPI document: valid, whole, and the same as the one that is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from fairbox.api.problems import KINDS
from fairbox.api.routes import ROUTES
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from tests.functions.api_client import DOCUMENT, ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.functions.api_client import ApiClient


def test_the_document_is_valid_openapi_3_1() -> None:
    validate(DOCUMENT, cls=OpenAPIV31SpecValidator)
    assert DOCUMENT["openapi"].startswith("3.1")


def test_the_api_serves_the_document_that_is_kept(api: ApiClient) -> None:
    kept = (ROOT / "docs" / "reference" / "openapi.json").read_text()
    assert api.call("GET", "/openapi.json").json == json.loads(kept)


def test_the_reference_pages_are_as_the_script_writes_them(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "write_openapi.py"
    subprocess.run([sys.executable, script, "--folder", tmp_path], check=True)
    for name in ("openapi.json", "http-api.md"):
        kept = (ROOT / "docs" / "reference" / name).read_text()
        assert (tmp_path / name).read_text() == kept, f"run {script.name}"


def test_every_route_and_every_kind_of_problem_is_told() -> None:
    operations = {
        (method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item
    }
    assert operations == {(r.method, r.path.replace("+}", "}")) for r in ROUTES}
    text = json.dumps(DOCUMENT)
    told = {kind for kind in KINDS if f"urn:fairbox:problem:{kind}`" in text}
    assert set(KINDS) - told == {"unknown-route", "method-not-allowed"}


def test_the_stack_routes_what_the_api_answers() -> None:
    text = (ROOT / "stacks" / "api.py").read_text()
    for route in ROUTES:
        assert f'("{route.method}", "{route.path}")' in text
