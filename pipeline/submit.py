"""Entry point of `spark-submit`: the command line's jobs, from the package beside it."""

import sys

from fairbox_pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main())
