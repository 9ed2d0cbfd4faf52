"""`python -m tidegate.spark.probe FOLDER ANSWERS NAME...`: finds each transform in the folder, and tells what is wrong with it.

One line of JSON for each transform, `[name, fault or null]`, is added to the file ANSWERS at once, since a module may end this
process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tidegate.core.errors import TidegateError
from tidegate.spark.transforms import find_transform


def main(folder: Path, answers: Path, names: list[str]) -> None:
    """Find every transform."""
    for name in names:
        try:
            find_transform(name, folder)
            fault = None
        except TidegateError as error:
            fault = str(error)
        with answers.open("a", encoding="utf-8") as file:
            file.write(json.dumps([name, fault]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
