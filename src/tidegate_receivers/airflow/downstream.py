"""What an instance hears of the pipeline behind it: by its cursor, the ends of the log, and what instances tell Airflow.

Nothing is published for receivers. The cursor is moved by each commit; it says how far the pipeline has come, and holds the
state of its rate policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger, cursor_key
from tidegate.core.state.ports import Brokers, StateStore
from tidegate_receivers.runtime.backpressure import Heard, loadable_rate, records_behind

LOOK_S = 2.0
"""What Airflow is asked for is asked so often; what the brokers are asked for, each time."""

Buffers = Mapping[str, tuple[float, float]]
"""As `Heard.buffers`."""


@dataclass(kw_only=True)
class PipelineBehind:
    """The pipeline that loads a receiver's topic, and the other instances.

    Args:
        pipeline: its file.
        topic: the receiver's.
        store: has its cursor.
        brokers: of the topic.
        instances: how many instances share what the pipeline takes, at a time (epoch s).
        buffers: what the instances have told of their buffers.
    """

    pipeline: Pipeline
    topic: str
    store: StateStore
    brokers: Brokers
    instances: Callable[[float], int]
    buffers: Callable[[], Buffers]
    _asked_s: float = field(default=float("-inf"), init=False)
    _cursor: Cursor | None = field(default=None, init=False)
    _buffers: Buffers = field(default_factory=dict, init=False)

    def __call__(self) -> Heard:
        """How they do now. The cursor is read before the log, so that what was loaded meanwhile counts as waiting.

        Raises:
            KafkaError, StateError: they cannot be read.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s >= LOOK_S:
            self._cursor, self._buffers = self._saved(), self.buffers()
            self._asked_s = now_s
        pipeline, cursor = self.pipeline, self._cursor
        return Heard(
            lag=records_behind(cursor, self.brokers.watermarks([self.topic]).assigned(pipeline.source.assign)),
            rate=loadable_rate(pipeline.rate_control, pipeline.limits.max_records, cursor, pipeline.interval_s),
            instances=self.instances(time.time()),
            buffers=self._buffers,
        )

    def _saved(self) -> Cursor | None:
        """The saved cursor; None where the pipeline has not loaded anything."""
        key = cursor_key(self.pipeline.name)
        return Ledger(self.store, self.pipeline.name).cursor() if key in self.store.keys(key) else None
