"""What spark-submit runs: one load, with the transforms of this folder.

    spark-submit load_range.py --job job.json --result result.json

`tidegate.spark.submit` does the work.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tidegate.spark.submit import main

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.exit(main(["--spark-jobs", str(HERE), *sys.argv[1:]]))
