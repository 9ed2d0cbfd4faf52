"""Sessions of a Spark Connect server that share compiled code: a property of the server, which `connect` asks for.

Spark turns each query into Java source, compiles it, and keeps the classes by their text and by the class loader that they were
compiled for (`CodeGenerator`, SPARK-44795). `SparkConnectServer` gives each session a class loader of its own, so that sessions
can add artifacts that others do not see. A load has a session of its own, hence compiles all its classes anew, 14 in a small
one, and the JVM begins again to optimize them.

A session decides at its first request whether it has a class loader of its own, before a client can set anything. Its clone
decides anew: `connect` clones a session that has `SETTINGS`, where the server has `PROPERTY`.

The price: such a session must add no artifacts, and `connect` refuses them. Spark 4.1 would hand them to the tasks of every
session, also after the one that added them is closed and their files are gone, which fails these tasks.
"""

from __future__ import annotations

PROPERTY = {"spark.tidegate.sharedCode": "true"}
"""For whoever starts a Spark Connect server whose sessions add no artifacts."""

SETTINGS = {
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
}
"""Of a session whose clones share compiled code."""
