"""What Iceberg, its catalogs and its storage throw, as rules of `tidegate.spark.errors`."""

from __future__ import annotations

from tidegate.core.errors import SinkConflict, SinkUnavailable
from tidegate.spark.rules import LOOKED_UP, rule

REFUSED = (
    rule(
        # What Iceberg refuses a commit for, when it compares it with the commits since. None of it has landed.
        r"Cannot delete file where some, but not all, rows match filter|Found (?:new )?conflicting (?:deleted? )?files"
        r"|Cannot determine history between starting snapshot|Missing required files to delete|CommitFailedException",
        SinkConflict,
        "other commits changed the same data files of the table at the same time; nothing was written",
        "Clear the task: it looks at the table anew",
    ),
)
"""Commits that were refused, and did not land."""

UNANSWERED = (
    rule(
        r"CommitStateUnknownException",
        SinkUnavailable,
        "the catalog did not say whether the commit landed",
        f"Clear the task once the catalog answers; {LOOKED_UP}",
    ),
    rule(
        r"UncheckedSQLException|java\.sql\.SQL\w*Exception|SQLiteException|SQLITE_BUSY|RESTException|ServiceFailureException"
        r"|ServiceUnavailableException|Failed to connect to: jdbc|Cannot initialize JDBC catalog|Failed to refresh the table"
        r"|RuntimeIOException|NotFoundException: (?:Location|File) does not exist",
        SinkUnavailable,
        "the catalog or the storage of the table does not answer",
        f"Start it, or correct spark.sql.catalog.* where Spark runs; {LOOKED_UP}",
    ),
)
"""What does not answer, or leaves open whether a commit landed."""
