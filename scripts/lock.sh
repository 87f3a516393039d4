#!/usr/bin/env bash
# Resolve the workspace and write three locks of versions and hashes, for every platform, no addresses:
# requirements.lock for this machine, layers/dependencies/requirements.lock for the functions' layer,
# pipeline/requirements.lock for the pipeline's jobs on EMR Serverless.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_PYTHON_DOWNLOADS=never
uv_export() {
    .local/uv/bin/uv export --quiet --no-emit-workspace --no-header --no-annotate --format requirements-txt "$@"
}
uv_export --all-packages --all-groups --all-extras --output-file requirements.lock
# With the SDK: the runtime's own changes without notice, in a Region after another.
uv_export --package fairbox --extra functions --no-default-groups \
    --output-file layers/dependencies/requirements.lock
# The release brings Spark.
uv_export --package fairbox-pipeline --extra replay --no-default-groups --prune pyspark \
    --output-file pipeline/requirements.lock
