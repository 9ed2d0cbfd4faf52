"""The checkpoint of a Structured Streaming query, wherever it is: which batch is the last one, and what its log says.

Spark's `OffsetSeqLog` is the folder `offsets`, its `CommitLog` the folder `commits`: a file for each batch, by its number.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tidegate.core.model.errors import RequestError

HADOOPS = re.compile(r"^(s3[an]://)|^file:/+")
"""Addresses as Hadoop writes them."""


def read_checkpoint(location: str) -> tuple[int, int | None, str]:
    """The last committed batch of a checkpoint, one that was begun after it, and what the offset log says of the first.

    Raises RequestError: there is none, or it cannot be read.
    """
    from pyarrow import fs  # noqa: PLC0415 - slow to import

    def batches(log: str) -> set[int]:
        found = files.get_file_info(fs.FileSelector(f"{root}/{log}"))
        return {int(each.base_name) for each in found if each.base_name.isdecimal()}

    files: Any
    try:
        where = HADOOPS.sub(lambda found: "s3://" if found[1] else "/", location)
        files, root = fs.FileSystem.from_uri(where if "://" in where else str(Path(where).absolute()))
        planned = batches("offsets")
        last = max(batches("commits") & planned, default=None)
        if last is not None:
            text = files.open_input_stream(f"{root}/offsets/{last}").read().decode()
            return last, max(planned) if max(planned) > last else None, text
    except (OSError, ValueError) as error:
        fix = "Name the query's checkpointLocation: a folder here, s3://, gs://, abfs:// or hdfs://; or copy the folder"
        raise RequestError(f"{location} cannot be read: {error}", fix=fix) from error
    raise RequestError(f"no batch of {location} is committed", fix="Name the checkpointLocation of a query that has run")
