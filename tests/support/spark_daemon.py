"""Starts Spark's Python workers without the archives that Spark puts into their path.

Before each task a worker reads the directories of all of them again, Spark's own jar included:
0.2 s for a task of a few milliseconds. Everything in them is installed here.
"""

import sys

if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if not path.endswith((".jar", ".zip"))]
    sys.path_importer_cache.clear()

    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]  # pyspark has no types here
