"""Entry point of `spark-submit`: the command line's jobs, with the packages of the environment.

`spark.archives` unpacks the packages into folder `environment` of the working directory, on the
driver and on each executor. The executors find them by `PYTHONPATH`.
"""

import sys
from pathlib import Path

ENVIRONMENT = Path("environment").resolve()

if __name__ == "__main__":
    if ENVIRONMENT.is_file():
        sys.exit(f"fairbox: {ENVIRONMENT} is a file: spark.archives must name a .zip to unpack")
    if ENVIRONMENT.is_dir():
        sys.path.insert(1, str(ENVIRONMENT))

    from fairbox_pipeline.cli import main

    sys.exit(main())
