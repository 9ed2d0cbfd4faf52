'''Receivers of one's own: a class with two methods.

    class Heartbeat(RecordSource):
        """A record every ten seconds."""

        async def on_start(self) -> None:
            self.spawn(self.beat())

        async def beat(self) -> None:
            while True:
                await self.store([b"alive"])
                await asyncio.sleep(10)

As in Spark's `Receiver`: `on_start` opens the source and returns, `on_stop` closes it; between the two whatever the receiver
has started calls `store`. An error in `on_start` or in a spawned task, and a call of `restart`, close the source, and it is
opened again after a delay. So a receiver handles no errors, and may be started more than once.
'''

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar

from tidegate.core.model.errors import ReceiverError, RecordRefused, RequestError, SourceUnavailable, TidegateError
from tidegate_receivers.runtime.intake import Intake, Ticket

GOES_ON = "The receiver goes on"


class RecordSource:
    """Takes in what a source has. See this module for a complete example."""

    resumes: ClassVar[bool] = False
    """Whether the source reads again, in the next lease, what was stored and not acknowledged: then nothing of it is lost."""

    _intake: Intake | None = None
    _fail: Callable[[TidegateError], None]
    _tasks: set[asyncio.Task[None]]

    async def on_start(self) -> None:
        """Open the source and return. Whatever it raises is reported, and the receiver is started again after a delay."""
        raise NotImplementedError

    async def on_stop(self) -> None:
        """Stop accepting, and close the source. What was spawned is cancelled afterwards, and what is stored is delivered.

        It is called after each successful `on_start`.
        """

    async def store(self, values: Sequence[bytes], *, key: bytes | None = None, stream: int = 0) -> Ticket:
        """Store records. It waits while the receiver's rate is used up or its buffer is full: do not read on meanwhile.

        Args:
            values: the records, at least one.
            key: their key in Kafka; records of one key keep their order.
            stream: records without a key keep their order within a stream, such as a connection.

        Returns:
            What may be awaited: it ends when the broker has acknowledged the records, which are sent again until then.

        Raises:
            RecordRefused: a record is longer than the receiver takes; nothing is stored.
        """
        return await self.intake.store(values, key=key, stream=stream)

    def restart(self, reason: str, error: BaseException | None = None) -> None:
        """Close the source, and open it again after a delay. It returns at once."""
        self._fail(as_error(reason, error))

    def report_error(self, reason: str, error: BaseException | None = None) -> None:
        """Put an error into the log and the lease's report; the receiver goes on."""
        self.intake.report(as_error(reason, error, fix=GOES_ON))

    def refuse(self, records: int, reason: str) -> None:
        """Count records that cannot be stored, and put the reason into the log and the lease's report."""
        self.intake.counts.refused += records
        self.intake.report(RecordRefused(reason, fix="Send shorter, complete records"))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside until it ends or the receiver stops. If it raises, the receiver is started again."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    @property
    def intake(self) -> Intake:
        """Where records go.

        Raises:
            RequestError: no supervisor runs the receiver.
        """
        if self._intake is None:
            raise RequestError("the receiver is not running", fix="Let `tidegate_receivers.runtime.supervisor.serve` run it")
        return self._intake

    # ---- for the supervisor

    def attach(self, intake: Intake, failed: Callable[[TidegateError], None]) -> None:
        """Tell the receiver where its records go, and whom to tell when it fails."""
        self._intake, self._fail, self._tasks = intake, failed, set()

    async def end_tasks(self) -> None:
        """Cancel what was spawned, and wait for its end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(as_error("the source failed", error))


def as_error(reason: str, error: BaseException | None, *, fix: str = "The receiver is started again") -> TidegateError:
    """A reason, and what was raised, as one of Tidegate's errors; one that is already stays as it is."""
    if isinstance(error, TidegateError):
        return error
    if isinstance(error, OSError):
        what = error.strerror or str(error) or type(error).__name__
        return SourceUnavailable(f"{reason}: {what}", fix=fix)
    why = reason if error is None else f"{reason}: {type(error).__name__}: {error}"
    return ReceiverError(why, fix=fix)
