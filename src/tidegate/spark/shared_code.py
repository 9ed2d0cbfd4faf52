"""Sessions of a Spark Connect server that share compiled code, where the server has the properties that `connect` asks for.

Spark turns each query into Java source, compiles it, and keeps the classes by their text and by the class loader that they were
compiled for (`CodeGenerator`, SPARK-44795). `SparkConnectServer` gives each session a class loader of its own, so that sessions
can add artifacts that others do not see. A load has a session of its own, hence compiles all its classes anew, 14 in a small
one, and the JVM begins again to optimize them.

A session decides at its first request whether it has a class loader of its own, before a client can set anything. Its clone
decides anew: `connect` clones a session that has `SETTINGS`, where the server has all of `PROPERTIES`.

The price: what one such session adds is there for the tasks of all. Artifacts would fail these tasks in Spark 4.1 once their
session is closed and their files are gone, so `connect` refuses them. Files and jars that SQL adds (`ADD FILE`) stay until the
server ends, and two of one name would fail the tasks of all sessions, unless the newer one may take the place of the older.
"""

from __future__ import annotations

SWITCH = "spark.tidegate.sharedCode"
PROPERTIES = {SWITCH: "true", "spark.files.overwrite": "true"}
"""For whoever starts a Spark Connect server whose sessions, those of other clients too, add no artifacts. All are needed."""

SETTINGS = {
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
}
"""Of a session whose clones share compiled code."""
