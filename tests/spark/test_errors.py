from __future__ import annotations

from typing import Any

import pytest

from tidegate.core.model.errors import (
    BrokerUnavailable,
    KafkaAuthFailed,
    OffsetsOutOfRange,
    SinkConflict,
    SinkFull,
    SinkMisfit,
    SinkUnavailable,
    SparkAuthFailed,
    SparkJobFailed,
    SparkMisfit,
    SparkUnavailable,
    StateCorrupt,
    TableLost,
    TidegateError,
    TopicNotFound,
    TransformError,
)
from tidegate.sinks.failures import first_line, reason
from tidegate.spark.errors import translate, translated


class Remote(Exception):
    """An exception as Spark Connect raises them: a message, a JVM trace and a gRPC status."""

    def __init__(self, message: str, trace: str = "", status: str = "INTERNAL") -> None:
        super().__init__(message)
        self.trace = trace
        self.status = status

    def getStackTrace(self) -> str:  # noqa: N802 - pyspark's name
        """The JVM's trace."""
        return self.trace

    def getGrpcStatusCode(self) -> Any:  # noqa: N802 - pyspark's name
        """The gRPC status, which has a name."""
        return type("Status", (), {"name": self.status})


FAILURES: dict[str, type[TidegateError]] = {
    "[USER_RAISED_EXCEPTION] tidegate: a row left the range: orders-0 at offset 7 SQLSTATE: P0001": TransformError,
    "Caused by: java.io.IOException: No space left on device": SinkFull,
    "Found conflicting files that can contain records matching (ref(name=x) == 1): [a.parquet]": SinkConflict,
    "Found conflicting deleted files that can contain records matching true: [a.parquet]": SinkConflict,
    "Found new conflicting delete files that can apply to records matching true: [a.parquet]": SinkConflict,
    "ValidationException: Cannot determine history between starting snapshot 1 and the last": SinkConflict,
    "org.apache.iceberg.exceptions.CommitFailedException: Version 4 already exists": SinkConflict,
    "Caused by: org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed": KafkaAuthFailed,
    "Caused by: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not": TopicNotFound,
    "org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position": OffsetsOutOfRange,
    "KafkaIllegalStateException: Some data may have been lost because they are not available": OffsetsOutOfRange,
    "Caused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node": BrokerUnavailable,
    "org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient": BrokerUnavailable,
    "java.io.FileNotFoundException: File file:/lake/t/metadata/snap-82-1-2f-9e.avro does not exist": TableLost,
    "iceberg.exceptions.NotFoundException: Location does not exist: s3://l/t/metadata/snap-82-1-2f-9e.avro": TableLost,
    "iceberg.exceptions.NotFoundException: Location does not exist: s3://l/t/data/1.parquet": SinkUnavailable,
    "org.apache.iceberg.exceptions.CommitStateUnknownException: read timed out": SinkUnavailable,
    "org.apache.iceberg.jdbc.UncheckedSQLException: Failed to connect to: jdbc:postgresql:x": SinkUnavailable,
    "Job 7 cancelled because SparkContext was shut down": SparkUnavailable,
    "[INVALID_HANDLE.SESSION_CHANGED] The handle is invalid": SparkUnavailable,
    "[INTERNAL_ERROR] No active or default Spark session found SQLSTATE: XX000": SparkUnavailable,
    "[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED] Partitions specified for Kafka start offsets": TopicNotFound,
    "[KAFKA_DATA_LOSS.PARTITIONS_DELETED] Some data may have been lost": TopicNotFound,
    "java.util.concurrent.TimeoutException: Cannot fetch record for offset 7 in 120000 milliseconds": BrokerUnavailable,
    "java.io.FileNotFoundException: /lake/_kafka_topic=t (File name too long)": SinkMisfit,
    "Failed to find data source: kafka. Please deploy the application as per the deployment section": SparkMisfit,
    "SparkException: Cannot find catalog plugin class for catalog 'lake': org.iceberg.SparkCatalog.": SparkMisfit,
    "[REQUIRES_SINGLE_PART_NAMESPACE] spark_catalog requires a single-part, but got `lake`.`a`.": SparkMisfit,
    "[OPERATION_CANCELED] Operation has been canceled": SparkJobFailed,
}
TELLING = [
    (
        "Cannot delete file where some, but not all, rows match filter ref(name=x): a.parquet",
        SinkConflict,
        "lower `max_records` of the pipeline and delete the range's Variable",
    ),
    (
        "Caused by: org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [orders]",
        KafkaAuthFailed,
        "the broker accepts the credentials, but does not allow reading (",
    ),
    (
        "Caused by: org.apache.kafka.common.errors.GroupAuthorizationException: Not authorized to access group: orders",
        KafkaAuthFailed,
        "Not authorized to access group: orders). Let the user of the Kafka connection Describe and Read what is named",
    ),
    (
        "IOException: Mkdirs failed to create file:/lake/a/b/metadata (exists=false)",
        SparkMisfit,
        "Spark may not write a file (",
    ),
    (
        "S3Exception: Access Denied (Service: S3, Status Code: 403)",
        SparkMisfit,
        "driver and executors write into the warehouse",
    ),
    ("java.lang.OutOfMemoryError: Java heap space", SparkJobFailed, "Spark ran out of memory ("),
    (
        "Caused by: org.apache.spark.memory.SparkOutOfMemoryError: [UNABLE_TO_ACQUIRE_MEMORY] Unable",
        SparkJobFailed,
        "ran out of memory",
    ),
    (
        "SparkException: Not enough memory to build and broadcast the table to all worker nodes",
        SparkJobFailed,
        "Spark ran out of memory (",
    ),
    (
        "Total size of serialized results of 8 tasks (1088.0 MiB) is bigger than spark.driver.maxResultSize (1024.0 MiB)",
        SparkJobFailed,
        "larger than the driver accepts",
    ),
    ("ExecutorLostFailure (executor 3 exited caused by one of the running tasks)", SparkJobFailed, "an executor was lost"),
    (
        "ArithmeticException: long overflow\n\tat org.apache.spark.sql.kafka010.KafkaRecordToRowConverter$.toUnsafeRow",
        SparkJobFailed,
        "a record's Kafka timestamp is beyond what Spark can hold",
    ),
    ("[RESOURCE_EXHAUSTED] x: Received message larger than max (5 vs. 4)", SparkJobFailed, "larger than gRPC allows"),
]


@pytest.mark.parametrize(("text", "expected", "told"), [*((text, error, "") for text, error in FAILURES.items()), *TELLING])
def test_each_failure_has_its_error_with_a_fix(text: str, expected: type[TidegateError], told: str) -> None:
    """By the message alone or by the trace behind it; what failed is quoted. No fix is that of what nobody knows."""
    for error in (Remote(text), Remote("Job aborted due to stage failure", trace=f"SparkException\n\tat x\n{text}\n\tat y")):
        found = translate(error, table="lake.a.b")
        assert type(found) is expected
        assert told in str(found)
        assert found.fix
        assert "log and in Spark's" not in found.fix
        assert found.fields == {"table": "lake.a.b"}


def test_a_state_that_lost_its_files_is_named_by_its_folder() -> None:
    """Which may be that of the quarantine: its snapshots are not in the table."""
    found = translate(Remote("NotFoundException: Location does not exist: s3://l/t_quarantine/metadata/snap-8-1-2f.avro"))
    assert "(s3://l/t_quarantine/metadata/snap-8-1-2f.avro)" in found.message


def test_a_topic_that_may_not_be_read_is_named_where_kafka_names_none() -> None:
    """As where it may not be described either. The topics are those of the load."""
    found = translate(Remote("common.errors.TopicAuthorizationException: Topic authorization failed."), topics="orders, visits")
    assert "Let the user of the Kafka connection Describe and Read orders, visits," in found.fix


def call(status: str, details: str) -> str:
    """A failed call as gRPC prints it, which is all that Spark's client keeps of an error that is no exception in the JVM."""
    return (
        f'<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.{status}\n\tdetails = "{details}"\n'
        f'\tdebug_error_string = "{status}:{details}"\n>'
    )


@pytest.mark.parametrize(
    ("status", "details", "expected", "told"),
    [
        ("UNKNOWN", "Java heap space", SparkJobFailed, "Spark ran out of memory (Java heap space)"),
        ("UNKNOWN", "No space left on device", SinkFull, "no space is left"),
        ("RESOURCE_EXHAUSTED", "Sent message larger than max (9 vs. 4)", SparkJobFailed, "larger than gRPC allows"),
        ("INTERNAL", "it broke", SparkJobFailed, "the Spark job failed: it broke"),
        ("UNKNOWN", "", SparkJobFailed, "without a reason (gRPC status UNKNOWN)"),
        ("UNAVAILABLE", "Socket closed", SparkUnavailable, "does not answer, or died"),
        (
            "UNKNOWN",
            "Application error processing RPC",
            SparkUnavailable,
            "the Spark server answers, but cannot run jobs any more",
        ),
        ("UNAUTHENTICATED", "Invalid authentication token", SparkAuthFailed, "refuses the credentials"),
    ],
)
def test_of_a_grpc_call_that_failed_the_details_are_told(
    status: str, details: str, expected: type[TidegateError], told: str
) -> None:
    """Never the name of its class, whether the client wraps it or raises it as it is."""
    text = call(status, details)
    for error in (Remote(text, status=status), RuntimeError(text)):
        found = translate(error)
        assert type(found) is expected
        assert told in found.message
        assert "Rendezvous" not in str(found)
        assert "RPC that" not in str(found)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("UNAVAILABLE", SparkUnavailable),
        ("DEADLINE_EXCEEDED", SparkUnavailable),
        ("UNAUTHENTICATED", SparkAuthFailed),
        ("PERMISSION_DENIED", SparkAuthFailed),
    ],
)
def test_what_grpc_says_of_the_server_comes_first(status: str, expected: type[TidegateError]) -> None:
    """A status of the connection is no failure of the job, whatever the text."""
    assert type(translate(Remote("No space left on device", status=status))) is expected


def test_an_unknown_failure_tells_its_deepest_cause() -> None:
    """Not Spark's wrapping, and no package names."""
    wrapped = "org.apache.spark.SparkException: Writing job aborted\n\tat a\n"
    trace = f"{wrapped}Caused by: java.lang.ArithmeticException: / by zero\n\tat b"
    assert "ArithmeticException: / by zero" in str(translate(Remote("Writing job aborted", trace=trace)))
    assert first_line(trace) == "ArithmeticException: / by zero"
    assert first_line("") == "no message"


def test_what_a_record_holds_names_no_command() -> None:
    """Pages offer those of a message: they are between backticks. Nor does it turn the text after it."""
    hostile = str(translate(Remote("bad value \u202e`tidegate remove orders`")))
    assert not {"`", "\u202e"} & {*hostile}
    assert "`" not in reason(ValueError("`tidegate remove orders`"))
    assert "`" not in str(translate(Remote("NULL value appeared in non-nullable field: `tidegate")))


def test_a_line_that_ends_with_a_colon_goes_on() -> None:
    """The next one is what matters: the field."""
    schema = (
        "java.lang.IllegalStateException: Invalid schema for v2:\n- Invalid type for v: variant is not supported until v3\n"
    )
    told = "IllegalStateException: Invalid schema for v2: - Invalid type for v: variant is not supported until v3"
    assert first_line(f"{schema}\tat a") == told
    assert first_line(f"org.apache.spark.SparkException: Writing job aborted\n\tat a\nCaused by: {schema}\tat b") == told
    assert first_line("Something happened:\n\tat a") == "Something happened:"
    null = "[NOT_NULL_ASSERT_VIOLATION] NULL value appeared in non-nullable field: \nshop\nIf the schema is inferred from"
    found = translate(Remote(null), table="lake.shop.orders")
    assert type(found) is SinkMisfit
    assert "requires (shop)" in found.message
    assert "run ALTER TABLE lake.shop.orders ALTER COLUMN shop DROP NOT NULL" in found.fix


def test_our_own_errors_pass_and_others_keep_their_cause() -> None:
    """Translated once, and only what is not ours."""
    own, other = StateCorrupt("x"), Remote("y")
    with pytest.raises(StateCorrupt) as kept, translated(seq=1):
        raise own
    assert kept.value is own
    with pytest.raises(SparkJobFailed) as made, translated(seq=1):
        raise other
    assert made.value.__cause__ is other
