"""The producer of receivers, beside what its integration tests show on a real broker."""

from __future__ import annotations

from unittest import mock

import confluent_kafka as ck

from tidegate.ingest.producer import KafkaSender


def test_a_client_that_cannot_be_closed_is_let_go_all_the_same() -> None:
    """A fatal error is raised again by `close`; the records have their answers, so the sender goes on with a new client."""
    sender = KafkaSender({"bootstrap.servers": "127.0.0.1:1"}, "orders", max_record_bytes=1000)
    fatal = ck.KafkaException(ck.KafkaError(ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED))
    sender._client = mock.Mock(close=mock.Mock(side_effect=fatal))
    sender._end_client()
    assert sender._client is None
