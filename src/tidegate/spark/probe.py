"""`python -m tidegate.spark.transform_check FOLDER ANSWERS NAME...`: finds each transform in the folder, and reports its faults.

One line of JSON for each transform, `[name, fault or null]`, is added to the file ANSWERS at once, since a module may end this
process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException

from tidegate.core.model.errors import TidegateError
from tidegate.spark.transforms import find_transform

NEEDS_SESSION = ("NO_ACTIVE_OR_DEFAULT_SESSION", "SESSION_OR_CONTEXT_NOT_EXISTS")


def main(folder: Path, answers: Path, names: list[str]) -> None:
    """Find every transform."""
    for name in names:
        try:
            find_transform(name, folder)
            fault = None
        except TidegateError as error:
            fault = None if _needs_session(error.__cause__) else str(error)
        with answers.open("a", encoding="utf-8") as file:
            file.write(json.dumps([name, fault]) + "\n")


def _needs_session(error: BaseException | None) -> bool:
    """Whether the import fails for want of a Spark session, which a load has before it imports a transform."""
    return isinstance(error, PySparkException) and error.getCondition() in NEEDS_SESSION


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
