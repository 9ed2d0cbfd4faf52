"""What Iceberg, its catalogs and its storage throw, as rules of `tidegate.spark.errors`."""

from __future__ import annotations

from tidegate.core.model.errors import SinkConflict, SinkUnavailable, SparkMisfit, TableLost
from tidegate.sinks.failures import LOOKED_UP, Rule

REFUSED = (
    Rule(
        # What Iceberg refuses a commit for, when it compares it with the commits since. None of it has landed.
        r"((?:Cannot delete file where some, but not all, rows match filter|Found (?:new )?conflicting (?:deleted? )?files"
        r"|Cannot determine history between starting snapshot|Cannot find snapshot with ID|Missing required files to delete"
        r"|CommitFailedException)[^:\[\n]*)",
        SinkConflict,
        "other commits changed the table between the look at it and this commit; nothing was written",
        "Clear the task with those after it, which looks at the table anew; beside a busy writer, lower `max_records` of the "
        "pipeline and delete the range's Variable, so that the next run plans a smaller batch",
    ),
)
"""Commits that were refused, and did not land."""

MISSING = (
    Rule(
        r"Mkdirs failed to create|Permission denied|AccessControlException|AccessDenied|Access Denied|Status Code: 403",
        SparkMisfit,
        "Spark may not write a file",
        "Let Spark's driver and executors write into the warehouse of the table's catalog, and into their own local folders",
    ),
    Rule(
        r"Cannot find catalog plugin class for catalog '[^'\n]+': ([\w.$]+\w)",
        SparkMisfit,
        "Spark lacks the class of the table's catalog",
        "Start Spark with the jar iceberg-spark-runtime of its own version",
    ),
    Rule(
        r"REQUIRES_SINGLE_PART_NAMESPACE\][^\n]* got `([^`\n]+)`",
        SparkMisfit,
        "Spark has no catalog of the name that the table's begins with",
        "Start Spark with spark.sql.catalog.{detail}=org.apache.iceberg.spark.SparkCatalog, with its type and uri",
    ),
)
"""What Spark was started without."""

UNANSWERED = (
    Rule(
        # with the folder, which says whether it is the table or its quarantine
        r"NotFoundException: [^\n]*?(\S*snap-\d+-\d+-[-0-9a-f]+\.avro)",
        TableLost,
        "the current state of the table in this folder has lost its files, as where a catalog's client repeats a commit that "
        "has landed unanswered",
        "Run `CALL CATALOG.system.rollback_to_snapshot('NAMESPACE.TABLE', ID)` with this snapshot's parent_id, which is in "
        "CATALOG.NAMESPACE.TABLE.snapshots, or, where that is null, `DROP TABLE CATALOG.NAMESPACE.TABLE`, which held nothing "
        "before; and clear the task with those after it: the load writes its rows again",
    ),
    Rule(
        r"CommitStateUnknownException",
        SinkUnavailable,
        "the catalog did not say whether the commit landed",
        f"Clear the task with those after it once the catalog answers; {LOOKED_UP}",
    ),
    Rule(
        r"UncheckedSQLException|java\.sql\.SQL\w*Exception|SQLiteException|SQLITE_BUSY|RESTException|ServiceFailureException"
        r"|ServiceUnavailableException|Failed to connect to: jdbc|Cannot initialize JDBC catalog|Failed to refresh the table"
        r"|RuntimeIOException|NotFoundException: (?:Location|File) does not exist",
        SinkUnavailable,
        "the catalog or the storage of the table does not answer",
        f"Start it, or correct spark.sql.catalog.* where Spark runs; {LOOKED_UP}",
    ),
)
"""What cannot be read, does not answer, or leaves open whether a commit landed."""
