"""The application that spark-submit gets from an installed package: `tidegate.airflow.runners` names this file."""

from __future__ import annotations

import sys

from tidegate.spark.submit import main

if __name__ == "__main__":
    sys.exit(main())
