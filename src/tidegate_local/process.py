"""One supervised server: a process of ours in a session of its own, with a pid file, a log file and a health check.

Rules:
- A pid alone proves nothing, since systems use pids again. The pid file holds when the process was created too, and only
  both together are "ours". That time counts from the boot of the machine: a clock that is set later does not change it.
- Whoever starts a server need not live as long as it. Nothing is kept in memory: any later process finds the server by
  its pid file, reads its state and stops it.
- Everything a server starts is ours to stop. Its members are found by session id, which a child keeps when it changes
  its process group or loses its parent; a session's id is not given to another process while a member of it lives.
- A log file holds one start; the one before is kept beside it as `.1`.

              spawn            health check true           it dies, kill -9
    stopped ────────► unhealthy ───────────────► running ─────────────────► crashed
       ▲                                            │                          │
       └──────────────────── stop ──────────────────┴──────── stop, spawn ─────┘
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from tidegate.core.model.errors import PlatformError
from tidegate.waiting import wait_until

Report = Callable[[str, str], None]
"""Called with a phase (`kafka`, `jars`, ...) and its state (`starting`, `running`, `failed`, ...), never by two at once."""
State = Literal["running", "stopped", "crashed", "unhealthy"]

STOP_GRACE_S = 15.0
ORPHAN_GRACE_S = 2.0
KILL_GRACE_S = 5.0
HUNG_AFTER_S = 10.0
_CREATE_TIME_TOLERANCE_S = 1.0


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)


def silent(_phase: str, _state: str) -> None:
    """Report to nobody."""


def one_at_a_time(report: Report) -> Report:
    """The same report, for servers that start in several threads: a renderer needs no lock of its own."""
    lock = threading.Lock()

    def locked(phase: str, state: str) -> None:
        with lock:
            report(phase, state)

    return locked


@dataclass(frozen=True)
class ProcessId:
    """A process for certain: its pid and when it was created (seconds since the machine was booted)."""

    pid: int
    since_boot: float

    @property
    def create_time(self) -> float:
        """When it was created, in seconds since the epoch by the clock of now."""
        return self.since_boot + psutil.boot_time()

    @staticmethod
    def of(pid: int) -> ProcessId:
        """The identity of a living process. Raises `psutil.NoSuchProcess`."""
        return ProcessId(pid, psutil.Process(pid).create_time() - psutil.boot_time())

    @staticmethod
    def read(path: Path) -> ProcessId | None:
        """The process of a pid file; None when there is no file, or when a crash left half of one."""
        try:
            value = json.loads(path.read_text())
            return ProcessId(int(value["pid"]), float(value["since_boot"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Save it, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps({"pid": self.pid, "since_boot": self.since_boot}))
        beside.replace(path)

    def process(self) -> psutil.Process | None:
        """The living process, None when it is gone, a zombie, or when its pid belongs to another one by now."""
        try:
            process = psutil.Process(self.pid)
            return None if self.pid_is_reused() or process.status() == psutil.STATUS_ZOMBIE else process
        except psutil.NoSuchProcess:
            return None

    def pid_is_reused(self) -> bool:
        """Whether the pid is another process's now."""
        try:
            return abs(ProcessId.of(self.pid).since_boot - self.since_boot) > _CREATE_TIME_TOLERANCE_S
        except psutil.NoSuchProcess:
            return False


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server and how to know that it works.

    `health` gets the create time of the process (seconds since the epoch), says whether it works, and never raises.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    pid_file: Path
    health: Callable[[float], bool]
    start_timeout_s: float = 90.0

    @property
    def state(self) -> State:
        """`running` and healthy, `unhealthy` (alive, or not up yet), `crashed` (gone without `stop`), or `stopped`."""
        identity = ProcessId.read(self.pid_file)
        if identity is None:
            return "stopped"
        if identity.process() is None:
            return "crashed"
        return "running" if self.health(identity.create_time) else "unhealthy"

    @property
    def pid(self) -> int | None:
        """The pid of the living server, None when it does not live."""
        identity = ProcessId.read(self.pid_file)
        return identity.pid if identity is not None and identity.process() is not None else None

    def start(self) -> None:
        """Spawn it and wait until it is healthy.

        Raises:
            PlatformError: it died, or was not healthy in time; names the log file and its last meaningful line.
        """
        self.await_healthy(spawned=self.spawn())

    def spawn(self) -> bool:
        """Start the process, unless it lives and is healthy or still starting; says whether it did.

        What a crashed or hung one left behind is ended first: it may hold the port.

        Raises:
            PlatformError: there is nothing to execute.
        """
        if self._is_up_or_coming():
            return False
        self.stop()
        self.cwd.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.log.replace(self.log.with_name(self.log.name + ".1"))
        with self.log.open("wb") as output:
            try:
                child = subprocess.Popen(  # noqa: S603
                    list(self.argv),
                    env=dict(self.env),
                    cwd=self.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise PlatformError(
                    f"{self.name} cannot be started: {error}", fix="Run `make venv`", server=self.name
                ) from error
        with contextlib.suppress(psutil.NoSuchProcess):
            ProcessId.of(child.pid).write(self.pid_file)
        # it may end long before we do: somebody has to take its exit status, or it stays a zombie
        threading.Thread(target=child.wait, name=f"reap-{self.name}", daemon=True).start()
        return True

    def await_healthy(self, *, spawned: bool = True) -> None:
        """Wait until the process is healthy, at most its start timeout from now. Raises as `start` does.

        One that `spawn` found living (`spawned` false) and that ends meanwhile was dying, and is started anew, once.
        """
        state = self._settled()
        if state == "crashed" and not spawned:
            # a process that was killed while it waits for its disk lives on for seconds
            self.spawn()
            state = self._settled()
        if state == "running":
            return
        happened = "ended while starting" if state != "unhealthy" else f"did not answer within {self.start_timeout_s:.0f} s"
        raise PlatformError(
            f"{self.name} {happened}: {self.last_words()} (see {self.log})",
            fix="Correct what the log names, then run `tidegate up` again",
            server=self.name,
            log=self.log,
        )

    def stop(self) -> None:
        """End the process and all that it started: SIGTERM, a grace, then SIGKILL. Harmless when nothing lives."""
        identity = ProcessId.read(self.pid_file)
        if identity is not None:
            # what outlived its server has nobody left to finish its work with, and may wait for it for ever
            end_all(members(identity), STOP_GRACE_S if identity.process() is not None else ORPHAN_GRACE_S)
        self.pid_file.unlink(missing_ok=True)

    def _settled(self) -> State:
        """The state, once it is no longer `unhealthy`, or after the start timeout."""
        looks: list[State] = []

        def is_decided() -> bool:
            looks.append(self.state)
            return looks[-1] != "unhealthy"

        wait_until(is_decided, self.start_timeout_s)
        # what was seen counts: a second look may find a busy machine's server silent for a moment
        return looks[-1]

    def _is_up_or_coming(self) -> bool:
        identity = ProcessId.read(self.pid_file)
        if identity is None or identity.process() is None:
            return False
        if time.time() - identity.create_time < self.start_timeout_s:
            return True
        # one answer may come late on a busy machine; a server that gives none for this long is hung
        return wait_until(lambda: self.state == "running", HUNG_AFTER_S)

    def last_words(self) -> str:
        """The last line of the log that says what went wrong."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 65_536))
                return last_meaningful_line(log.read().decode(errors="replace"))
        except OSError:
            return "it wrote no log"


def run_to_end(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, log: Path, timeout_s: float
) -> str | None:
    """Run a program whose output goes to a log, and wait for its end; why it failed, None where it did not."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            ended = subprocess.run(  # noqa: S603
                list(command),
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it took more than {timeout_s:.0f} s"
    return None if ended.returncode == 0 else last_meaningful_line(log.read_text(errors="replace"))


def members(identity: ProcessId) -> list[psutil.Process]:
    """The living processes of a server: itself, its session, and all their descendants."""
    if identity.pid_is_reused():
        return []
    by_pid: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(process.pid) == identity.pid:
                by_pid[process.pid] = process
    for process in list(by_pid.values()):
        with contextlib.suppress(psutil.Error):
            by_pid.update({child.pid: child for child in process.children(recursive=True)})
    return list(by_pid.values())


def end_all(processes: Sequence[psutil.Process], grace_s: float = STOP_GRACE_S) -> None:
    """SIGTERM to all of them, wait, SIGKILL to what is left, with what it started meanwhile."""
    _signal_all(processes, signal.SIGTERM)
    _, alive = psutil.wait_procs(processes, timeout=grace_s)
    late: list[psutil.Process] = list(alive)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            late.extend(process.children(recursive=True))
    _signal_all(late, signal.SIGKILL)
    psutil.wait_procs(late, timeout=KILL_GRACE_S)


def last_meaningful_line(log: str) -> str:
    """The line of a log that names the cause: the last that names an error, else the last that is not blank."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [
        line
        for line in lines
        if re.search(r"error|exception|fatal|in use|refused|denied|no space|cannot|could not", line, re.IGNORECASE)
        and not line.startswith(("at ", "File "))
    ]
    line = (telling or lines or ["its log is empty"])[-1]
    return line if len(line) <= 300 else line[:299] + "…"


def _signal_all(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            # psutil compares create times, so a pid that was used again meanwhile gets no signal
            process.send_signal(number)
