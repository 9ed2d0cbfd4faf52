"""The columns that identify a row of a table: by the record that it came from (its origin), or by the batch that made it.

The names of the origin begin with `_kafka_`, because sinks reserve shorter ones: Spark refuses to read an Iceberg table that
has a column `_partition`.
"""

TOPIC = "_kafka_topic"
"""The topic of a row's record (text)."""
PARTITION = "_kafka_partition"
"""The partition of a row's record (32-bit integer)."""
OFFSET = "_kafka_offset"
"""The offset of a row's record (64-bit integer)."""
ORIGIN_COLUMNS = (TOPIC, PARTITION, OFFSET)
"""The origin of a row; a table is partitioned by the first two."""
BATCH = "_batch"
"""The number of the batch that made a row (64-bit integer), where the transform aggregates."""
