"""What an examination of an installation finds. `tidegate doctor` prints it, and a DAG looks where tasks run.

A finding names one thing: what was looked at (`CHECKS`, of which docs/doctor.md has a section each), of which pipeline,
connection or server, what is the matter, and what to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from tidegate.core.model.errors import TidegateError

log = logging.getLogger(__name__)
State = Literal["broken", "doubtful", "unknown", "sound"]
"""`broken`: loads fail, or wait for ever. `doubtful`: they run, and something else does not. `unknown`: it was not asked."""

CHECKS = {
    "servers": "Airflow's scheduler, DAG processor and triggerer run",
    "plugin": "Airflow has loaded the plugin, with its pages",
    "pools": "the pools that loads wait for exist and have slots",
    "files": "Airflow reads every file of the DAG folder, and all its parts read the same",
    "packages": "the packages that tasks import have versions that fit",
    "variables": "Variables are read where they are written",
    "kafka-connection": "the connection exists, and both Kafka clients take its settings",
    "brokers": "each address of bootstrap.servers answers, and all are of one cluster",
    "topics": "the topics exist, and may be described",
    "read": "records of the topics may be read",
    "describe-configs": "the retention of the topics may be asked for",
    "retention": "the topics keep records longer than runs need to come by",
    "group": "the position of the consumer group may be written",
    "spark-connection": "the connection exists, and is one of Spark",
    "spark": "Spark answers, in a version that fits, and by the same clock",
    "catalog": "Spark has the catalog of the table, set up as loads need it",
    "extensions": "Spark has Iceberg's SQL extensions",
    "workers": "Spark's Python workers can decode records",
    "load": "the newest records are loaded into a table of their own, which is found from here and dropped",
}
"""What is looked at, by the name that findings have."""
FINDINGS, DEPLOYED = "tidegate_findings", "tidegate_deployed"
"""The XComs of what a task has found, and of what it runs: version, and digest of the pipelines' files."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at; its fields are its JSON.

    `check` is one of `CHECKS`, `of` the pipeline, connection, table or server. `says` is what is the matter, or how it is;
    `fix` is empty where nothing is to be done.
    """

    check: str
    of: str
    state: State
    says: str
    fix: str = ""

    def __str__(self) -> str:
        """As a log has it."""
        return f"{self.state}: {self.check} of {self.of}: {self.says}" + (f". {self.fix}" if self.fix else "")


def sound(check: str, of: str) -> Finding:
    """Nothing is the matter."""
    return Finding(check=check, of=of, state="sound", says=CHECKS.get(check, check))


def broken(check: str, of: str, says: str, fix: str = "") -> Finding:
    """Loads fail of it, or wait for ever."""
    return Finding(check=check, of=of, state="broken", says=says, fix=fix)


def doubtful(check: str, of: str, says: str, fix: str = "") -> Finding:
    """Loads run, and something else does not."""
    return Finding(check=check, of=of, state="doubtful", says=says, fix=fix)


def unknown(check: str, of: str, says: str, fix: str = "") -> Finding:
    """It was not asked."""
    return Finding(check=check, of=of, state="unknown", says=says, fix=fix)


def of_error(check: str, of: str, error: TidegateError, state: State = "broken") -> Finding:
    """What an error says."""
    return Finding(check=check, of=of, state=state, says=error.message, fix=error.fix or "")


def looked(check: str, of: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What is found, whatever a look fails for: what was found before stays, and others go on."""
    try:
        yield from look()
    except TidegateError as error:
        yield of_error(check, of, error)
    except Exception as error:
        log.exception("looking at %s of %s failed", check, of)
        why = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        yield broken(check, of, f"it cannot be looked at ({why})", "See the task's log")


def is_broken(findings: Iterable[Finding]) -> bool:
    """Whether anything keeps loads from running."""
    return any(each.state == "broken" for each in findings)
