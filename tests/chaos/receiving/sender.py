"""Posts batches of ids to a receiver, and remembers each id that it has sent and each that was answered 202.

It does what a careful sender does: whatever is not 202 is sent again, with the same body and the same `Idempotency-Key`.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

ANSWER_S = 4.0
"""Sooner than the receiver gives up, so that some posts are repeated whose records are landed later."""
PAUSE_S = 0.2
MOST_RECORDS = 20


class Sender:
    """Posts over several connections until it is stopped.

    Args:
        port: of the receiver, on the loopback.
        seed: draws the sizes of the batches.
        connections: how many post at the same time.
    """

    def __init__(self, port: int, seed: int, connections: int = 8) -> None:
        self._port, self._seed = port, seed
        self._lock = threading.Lock()
        self._sent = 0
        self._acknowledged: set[int] = set()
        self._latest_s = 0.0
        self._answers: Counter[str] = Counter()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"sender-{number}", daemon=True)
            for number in range(connections)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more. What has no answer then is not sent again."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    @property
    def sent(self) -> int:
        """Ids that were ever sent: those from 1 to this."""
        with self._lock:
            return self._sent

    def acknowledged(self) -> set[int]:
        """The ids that were answered 202."""
        with self._lock:
            return set(self._acknowledged)

    def was_acknowledged_since(self, epoch_s: float) -> bool:
        """Whether a post that began after this instant was answered 202."""
        with self._lock:
            return self._latest_s > epoch_s

    def answers(self) -> dict[str, int]:
        """How often each answer, or error, has come; from the first one, or the last call, on."""
        with self._lock:
            told, self._answers = dict(self._answers), Counter()
            return told

    # ---- in the threads

    def _run(self, number: int) -> None:
        draw = random.Random(f"{self._seed}/{number}")  # noqa: S311 - to be repeated, not to be secret
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_S)
        while not self._ended.wait(PAUSE_S):
            ids = self._new_ids(draw.randint(1, MOST_RECORDS))
            while not self._post(connection, ids) and not self._ended.wait(PAUSE_S):
                pass
        connection.close()

    def _new_ids(self, count: int) -> list[int]:
        with self._lock:
            self._sent += count
            return list(range(self._sent - count + 1, self._sent + 1))

    def _post(self, connection: http.client.HTTPConnection, ids: list[int]) -> bool:
        """Whether it was acknowledged."""
        body = json.dumps([{"id": each} for each in ids])
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"batch-{self._seed}-{ids[0]}"}
        began_s = time.time()
        try:
            connection.request("POST", "/", body, headers)
            response = connection.getresponse()
            response.read()
            answer = str(response.status)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            answer = type(error).__name__
        with self._lock:
            self._answers[answer] += 1
            if answer == "202":
                self._acknowledged.update(ids)
                self._latest_s = max(self._latest_s, began_s)
        return answer == "202"
