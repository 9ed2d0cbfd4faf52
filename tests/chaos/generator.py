"""The stream that the schedule loads while it is being hurt: everything a log can hold, at a steady rate.

Keys repeat, event times are out of order, one record in ten is not JSON or has no value, and every other step is a
transaction, of which some are aborted. What the log then holds is for the log to say: the verdict reads it there.
"""

from __future__ import annotations

import json
import random
import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, Producer

STEP_S = 0.25
ASK_S = 5.0


class Generator:
    """Writes until it is stopped; a broker that is away is waited for."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, rate: int, seed: int) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 5}
        self._topic, self._partitions = topic, partitions
        self._step = max(1, int(rate * STEP_S))
        self._random = random.Random(seed)  # noqa: S311 - a stream that can be repeated
        self._written = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="generator", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End the stream; what was begun is ended or aborted by the broker."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        plain = Producer({**self._settings, "enable.idempotence": True})
        transactional: Producer | None = None
        while not self._ended.wait(STEP_S):
            if self._random.random() < 0.5:
                self._write(plain)
                plain.poll(0)
                continue
            try:
                transactional = transactional or self._transactional()
                transactional.begin_transaction()
                self._write(transactional)
                if self._random.random() < 0.3:
                    transactional.flush(ASK_S)  # an abort of what was never sent would leave nothing in the log
                    transactional.abort_transaction(ASK_S)
                else:
                    transactional.commit_transaction(ASK_S)
            except KafkaException:
                transactional = None  # the next one, of the same id, ends what this one left open
        plain.flush(30)

    def _transactional(self) -> Producer:
        producer = Producer({**self._settings, "transactional.id": f"{self._topic}-chaos", "transaction.timeout.ms": 10_000})
        producer.init_transactions(ASK_S)
        return producer

    def _write(self, producer: Producer) -> None:
        for _ in range(self._step):
            self._written += 1
            producer.produce(
                self._topic,
                key=f"key-{self._random.randrange(50)}",
                value=self._value(),
                partition=self._random.randrange(self._partitions),
                timestamp=int((time.time() - self._random.uniform(0, 3600)) * 1000),
            )

    def _value(self) -> bytes | None:
        kind = self._random.random()
        if kind < 0.04:
            return None
        if kind < 0.10:
            return b"\xff not JSON {" + str(self._written).encode()
        return json.dumps({"id": self._written, "amount": self._random.randrange(1000)}).encode()
