"""Translates what Spark, Kafka's Java client and sinks throw into Tidegate's errors.

Their messages are read here and nowhere else, by rules; each sink has rules of its own (`sinks.iceberg.errors`).

A JVM failure reaches Python as text: a class name, a message and a chain of causes, through Py4J or through gRPC. `RULES` is
read from the top, and the first rule that matches names the error. An error that no rule matches is `SparkJobFailed`, with the
line of the deepest cause. The original error is always kept as `__cause__`.

A JVM error that is no exception, such as OutOfMemoryError, reaches Spark Connect's client without a class or a trace: the text
is that of the failed gRPC call, and only the call's details contain the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tidegate.core.model.errors import (
    BrokerUnavailable,
    KafkaAuthFailed,
    OffsetsOutOfRange,
    SinkFull,
    SinkMisfit,
    SparkAuthFailed,
    SparkJobFailed,
    SparkMisfit,
    SparkUnavailable,
    TidegateError,
    TopicNotFound,
    TransformError,
)
from tidegate.sinks.failures import DECIDED_TWICE, LOOKED_UP, ORIGIN_BROKEN, Rule, first_line, grpc_status, plain, text_of
from tidegate.sinks.iceberg import errors as iceberg

_SMALLER = (
    "Load fewer records at a time (limits.max_records, split.max_records_per_partition), check whether the transform multiplies"
    " rows"
)

FAILED = "the Spark job failed:"
"""The start of the error of a failure of which nothing more is known."""
NO_VALUE = "a row has no value in a column that the table requires"

RULES = (
    Rule(
        re.escape(ORIGIN_BROKEN) + r" (\S+ at offset \w+)",
        TransformError,
        "the transform made a row whose origin columns are not those of a record of this range",
        "Carry the origin columns of each record through the transform unchanged",
    ),
    Rule(
        re.escape(DECIDED_TWICE) + r" (\S+ at offset \w+)",
        TransformError,
        "the transform rejects other records each time that it is asked",
        "Decide by what a record holds, not by the clock, at random, or by what changes elsewhere",
    ),
    Rule(
        r"No space left on device|disk quota exceeded|SQLITE_FULL|database or disk is full",
        SinkFull,
        "no space is left where Spark or the table writes",
        f"Free space on that disk and clear the task with those after it; {LOOKED_UP}",
    ),
    Rule(
        r"Java heap space|OutOfMemoryError|GC overhead limit exceeded|UNABLE_TO_ACQUIRE_MEMORY"
        r"|Requested array size exceeds VM limit|Cannot allocate memory|[Nn]ot enough memory|Metaspace|OOMKilled"
        r"|exceeding (?:physical |virtual )?memory limits",
        SparkJobFailed,
        "Spark ran out of memory",
        f"{_SMALLER}, or give Spark more memory (spark.driver.memory, spark.executor.memory)",
    ),
    Rule(
        r"Total size of serialized results|maxResultSize",
        SparkJobFailed,
        "the results of the job's tasks are larger than the driver accepts",
        f"{_SMALLER}, or raise spark.driver.maxResultSize",
    ),
    Rule(
        r"ExecutorLostFailure|[Ll]ost executor|Executor heartbeat timed out|Remote RPC client disassociated",
        SparkJobFailed,
        "an executor was lost while the job ran",
        f"{_SMALLER}, and see the executor's log: running out of memory is the usual reason",
    ),
    Rule(
        r"RESOURCE_EXHAUSTED|larger than max \(\d+ vs\. \d+\)|exceeds maximum size \d+",
        SparkJobFailed,
        "a message between Spark and its client is larger than gRPC allows",
        "Make the transform's plan smaller, or raise spark.connect.grpc.maxInboundMessageSize",
    ),
    *iceberg.REFUSED,
    *iceberg.MISSING,
    Rule(
        r"[Ff]ailed to find (?:the )?data source: kafka",
        SparkMisfit,
        "Spark has no Kafka source",
        "Start Spark with the jar spark-sql-kafka-0-10_2.13 of its own version, and with the jars that this one needs",
    ),
    Rule(
        r"NULL value appeared in non-nullable field:?\s*([^\s:]+)",
        SinkMisfit,
        NO_VALUE,
        "Let the transform fill the column or leave such rows out, or set contract.missing to quarantine, or run ALTER TABLE "
        "{table} ALTER COLUMN {detail} DROP NOT NULL",
    ),
    Rule(
        r"File name too long",
        SinkMisfit,
        "the folder or file of a partition of the table would have a longer name than the file system takes",
        "Run ALTER TABLE {table} DROP PARTITION FIELD with the column of the long values, such as _kafka_topic, and clear the "
        "task with those after it",
    ),
    Rule(
        r"long overflow[\s\S]*(?:KafkaRecordToRowConverter|fromJavaTimestamp)",
        SparkJobFailed,
        "a record's Kafka timestamp is beyond what Spark can hold, such as nanoseconds for milliseconds",
        "Set message.timestamp.after.max.ms of the topic, so that the broker refuses such records, and remove this one with "
        "kafka-delete-records",
    ),
    Rule(
        r"(Not authorized to access (?:topics|group): \S+)|(?:Topic|Group|Cluster)AuthorizationException",
        KafkaAuthFailed,
        "the broker accepts the credentials, but does not allow reading",
        # not by the error, which often names none: where a topic may not even be described
        "Let the user of the Kafka connection Describe and Read {topics}, for example with kafka-acls.sh",
    ),
    Rule(
        r"SASL authentication failed|Sasl\w*AuthenticationException|AuthenticationException|SSL handshake failed"
        # Kafka's client reports that the token endpoint refuses it
        r"|The response code 40[013] and error response",
        KafkaAuthFailed,
        "the broker refuses the credentials",
        "Correct the Kafka connection's security settings",
    ),
    Rule(
        r"UnknownTopicOrPartitionException|UnknownTopicOrPartition|does not host this topic-partition"
        r"|Some of the partitions do not exist|Not all specified partitions are assigned"
        # gone between the plan and the load
        r"|KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED|KAFKA_DATA_LOSS\.PARTITIONS_DELETED"
        r"|MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET|you must specify all TopicPartitions",
        TopicNotFound,
        "a topic or partition of the range does not exist on the broker",
        "Create it, or correct source.topics of the pipeline",
    ),
    Rule(
        r"OffsetOutOfRangeException|OffsetOutOfRange|failOnDataLoss|may have been lost|Cannot fetch offset|KAFKA_DATA_LOSS"
        r"|data has been aged out",
        OffsetsOutOfRange,
        "the range is not in the topic's log (retention deleted it, or the log was truncated)",
        "Run `tidegate plan` with the pipeline's name: it names the lost offsets, and the command that goes on without them",
    ),
    Rule(
        r"(Cannot fetch record for offset \d+ in \d+ milliseconds)",
        BrokerUnavailable,
        "the broker sent no records in time",
        "Look whether it is busy, or limits its clients by a quota (consumer_byte_rate); the saved range stays",
    ),
    Rule(
        r"org\.apache\.kafka\.common\.errors\.(?:TimeoutException|DisconnectException|NetworkException)"
        r"|Timed out waiting for a node assignment|No resolvable bootstrap urls|Failed to construct kafka consumer"
        r"|Timeout of \d+ms expired before|Failed to create new KafkaAdminClient",
        BrokerUnavailable,
        "no Kafka broker answered the Spark job in time",
        "Start the broker, or correct bootstrap.servers so that Spark reaches it too; the saved range stays",
    ),
    *iceberg.UNANSWERED,
    Rule(
        r"SparkContext was shut ?down|SparkContext has been shutdown|stopped SparkContext|SparkContext was shut",
        SparkUnavailable,
        "Spark was shut down while it worked",
        f"Start it again; its log says why, and running out of memory is a common reason; {LOOKED_UP}",
    ),
    Rule(
        # Reported by a server whose context an out-of-memory error has stopped, while its process still runs.
        r"No active or default Spark session found|Application error processing RPC",
        SparkUnavailable,
        "the Spark server answers, but cannot run jobs any more",
        f"Restart it: its log says why, often that it ran out of memory; {LOOKED_UP}",
    ),
    Rule(
        r"OPERATION_CANCELED|cancelled part of cancelled job|JOB_CANCELLED|Job \d+ cancelled|Query has been cancelled",
        SparkJobFailed,
        "the job was interrupted",
        f"Clear the task with those after it to run it again; {LOOKED_UP}",
    ),
)

_LOST = re.compile(
    r"INVALID_HANDLE\.(SESSION_\w+|OPERATION_NOT_FOUND|OPERATION_ABANDONED)|RESPONSE_ALREADY_RECEIVED|NO_ACTIVE_SESSION"
    r"|Answer from Java side is empty|Error while sending or receiving"
    r"|An error occurred while trying to connect to the Java server"
)
_UNREACHABLE = ("UNAVAILABLE", "DEADLINE_EXCEEDED")
_REFUSED = ("UNAUTHENTICATED", "PERMISSION_DENIED")


@contextmanager
def translated(**fields: Any) -> Iterator[None]:
    """Whatever Spark raises inside leaves as a Tidegate error that carries `fields`; Tidegate's own pass unchanged."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:
        raise translate(error, **fields) from error


def translate(error: Exception, **fields: Any) -> TidegateError:
    """The Tidegate error that an exception of Spark's client means; `SparkJobFailed` where nothing more is known."""
    return known(error, **fields) or SparkJobFailed(
        f"{FAILED} {first_line(text_of(error))}", fix="See the cause in this task's log and in Spark's", **fields
    )


def known(error: Exception, **fields: Any) -> TidegateError | None:
    """The Tidegate error that an exception of Spark's client means; None where no rule matches."""
    text = text_of(error)
    status = grpc_status(error)
    if status in _REFUSED:
        return SparkAuthFailed(
            "the Spark server refuses the credentials", fix="Correct the Spark connection's token or user", **fields
        )
    if status in _UNREACHABLE or _LOST.search(text):
        return SparkUnavailable(
            "the Spark server does not answer, or died with the job", fix=f"Start it; {LOOKED_UP}", **fields
        )
    for each in RULES:
        if match := re.search(each.pattern, text):
            detail = plain((match[1] if match.re.groups else None) or first_line(text))
            named = {"table": fields.get("table", "<table>"), "topics": fields.get("topics", "what is named"), "detail": detail}
            fix = each.fix.format(**named)
            return each.error(f"{each.message} ({detail})", fix=fix, **fields)
    return None
