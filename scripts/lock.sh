#!/usr/bin/env bash
# Resolve the workspace and write requirements.lock: versions and hashes, for every platform, no addresses.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_PYTHON_DOWNLOADS=never
.local/uv/bin/uv export --quiet --all-packages --all-groups --all-extras --no-emit-workspace \
    --no-header --no-annotate --format requirements-txt --output-file requirements.lock
