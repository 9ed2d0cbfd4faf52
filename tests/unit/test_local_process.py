"""A supervised server, on small Python programs that stand in for brokers and JVMs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tidegate.core.model.errors import PlatformError
from tidegate.waiting import wait_until
from tidegate_local.process import ProcessId, Server, last_meaningful_line, members

READY_THEN_SLEEP = "import pathlib, time; pathlib.Path('ready').touch(); time.sleep(60)"
DIES = "import sys; print('starting'); print('FATAL: the disk is full'); print('bye'); sys.exit(3)"
IGNORES_SIGTERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {READY_THEN_SLEEP}"
HAS_A_CHILD = (
    "import pathlib, subprocess; child = subprocess.Popen(['sleep', '60'], process_group=0);"
    f"pathlib.Path('child').write_text(str(child.pid)); {READY_THEN_SLEEP}"
)


def server(tmp_path: Path, program: str, timeout_s: float = 10.0) -> Server:
    """A server that is healthy as soon as its program has made the file `ready`."""
    return Server(
        name="sample",
        argv=[sys.executable, "-c", program],
        env=dict(os.environ),
        cwd=tmp_path,
        log=tmp_path / "logs" / "sample.log",
        pid_file=tmp_path / "run" / "sample.pid",
        health=lambda _started: (tmp_path / "ready").exists(),
        start_timeout_s=timeout_s,
    )


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Server]:
    """A started server, stopped afterwards."""
    made = server(tmp_path, READY_THEN_SLEEP)
    made.start()
    yield made
    made.stop()


def is_gone(pid: int) -> bool:
    """Whether nothing lives under the pid; a zombie does not live."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def state(of: Server) -> str:
    """As it is now: a type checker believes that an attribute is what it was."""
    return of.state


def test_a_server_that_was_seen_healthy_has_started_whatever_the_next_look_says(running: Server) -> None:
    """A busy machine may answer one look and not the next."""
    answers = iter([False, True])
    replace(running, health=lambda _started: next(answers, False)).await_healthy()


@pytest.mark.parametrize("program", [READY_THEN_SLEEP, IGNORES_SIGTERM], ids=["ends", "ignores SIGTERM"])
def test_a_started_server_runs_and_a_stopped_one_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """A second start changes nothing; after the grace comes SIGKILL."""
    monkeypatch.setattr("tidegate_local.process.STOP_GRACE_S", 0.3)
    made = server(tmp_path, program)
    made.start()
    pid = made.pid
    made.start()
    assert (state(made), made.pid) == ("running", pid)
    made.stop()
    assert state(made) == "stopped"
    assert is_gone(pid or 0)


def test_a_killed_server_is_crashed_and_starts_again(running: Server) -> None:
    """A kill -9 is seen, and mended by start."""
    pid = running.pid or 0
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: running.state == "crashed", 5.0)
    running.start()
    assert (running.state, running.pid == pid) == ("running", False)


def test_a_server_that_was_dying_when_it_was_found_is_started_anew(running: Server) -> None:
    """A killed process that waits for its disk still lives when `start` looks, and is gone when it is waited for."""
    first = ProcessId.read(running.pid_file)
    assert first is not None

    def dies_when_looked_at(started: float) -> bool:
        if started != first.create_time:
            return True
        os.kill(first.pid, signal.SIGKILL)
        assert wait_until(lambda: is_gone(first.pid), 5.0)
        return False

    dying = replace(running, health=dies_when_looked_at)
    dying.start()
    assert dying.state == "running"
    assert dying.pid != first.pid


def test_a_reused_pid_is_never_taken_for_ours(tmp_path: Path) -> None:
    """A pid file with our own pid but another create time names a process that is gone, and nobody is signalled."""
    made = server(tmp_path, READY_THEN_SLEEP)
    made.pid_file.parent.mkdir(parents=True)
    ours = ProcessId.of(os.getpid())
    made.pid_file.write_text(json.dumps({"pid": ours.pid, "since_boot": ours.since_boot - 3600}))
    assert state(made) == "crashed"
    assert members(ProcessId(ours.pid, ours.since_boot - 3600)) == []
    made.stop()
    assert (state(made), made.pid) == ("stopped", None)


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}', '"1"', '{"pid": "x", "since_boot": 1}'])
def test_half_a_pid_file_names_nobody(tmp_path: Path, text: str) -> None:
    """A crash while writing leaves nothing to believe."""
    path = tmp_path / "sample.pid"
    path.write_text(text)
    assert ProcessId.read(path) is None


def test_a_server_is_ours_after_the_clock_was_set(running: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of the clock moves the time of boot with it."""
    identity, booted = ProcessId.of(running.pid or 0), psutil.boot_time()
    for name in ("psutil.boot_time", "psutil._pslinux.boot_time"):
        monkeypatch.setattr(name, lambda: booted - 7200)
    assert state(running) == "running"
    assert ProcessId.read(running.pid_file) == identity
    assert identity.create_time < booted + identity.since_boot
    running.stop()
    assert is_gone(identity.pid)


def test_a_server_that_dies_while_starting_tells_its_last_meaningful_line(tmp_path: Path) -> None:
    """The error names the log and what the log says; the log of the start before is kept beside it."""
    made = server(tmp_path, DIES)
    for _ in range(2):
        with pytest.raises(PlatformError, match="ended while starting: FATAL: the disk is full") as caught:
            made.start()
    assert str(made.log) in str(caught.value)
    assert made.state == "crashed"
    assert [file.read_text().count("FATAL") for file in (made.log, made.log.with_name("sample.log.1"))] == [1, 1]


def test_a_server_that_does_not_answer_in_time_or_is_not_there_is_an_error(tmp_path: Path) -> None:
    """Alive is not healthy; nothing to execute gives our error, not Python's."""
    made = server(tmp_path, "import time; time.sleep(60)", timeout_s=0.3)
    with pytest.raises(PlatformError, match="sample cannot be started"):
        replace(made, argv=[str(tmp_path / "nothing")]).start()
    with pytest.raises(PlatformError, match="did not answer within"):
        made.start()
    assert made.state == "unhealthy"
    made.stop()


@pytest.mark.slow
@pytest.mark.parametrize("killed_before", [False, True])
def test_stop_ends_what_a_server_started_even_when_it_died_first(tmp_path: Path, killed_before: bool) -> None:  # noqa: FBT001
    """A child in a process group of its own goes too, and so does one whose parent is dead."""
    made = server(tmp_path, HAS_A_CHILD)
    made.start()
    child, pid = int((tmp_path / "child").read_text()), made.pid
    assert pid is not None
    if killed_before:
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: made.state == "crashed", 5.0)
        assert not is_gone(child)
    made.stop()
    assert is_gone(child)


def test_a_hung_server_is_replaced(running: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is past its start timeout and gives no healthy answer is started anew."""
    monkeypatch.setattr("tidegate_local.process.HUNG_AFTER_S", 0.1)
    pid = running.pid
    (tmp_path / "ready").unlink()
    monkeypatch.setattr("tidegate_local.process.time", SimpleNamespace(time=lambda: time.time() + running.start_timeout_s))
    running.start()
    assert (running.state, running.pid == pid) == ("running", False)


@pytest.mark.slow
def test_a_server_outlives_whoever_started_it(tmp_path: Path) -> None:
    """Another process starts it and ends; we find it by its pid file."""
    starter = (
        "import sys; from pathlib import Path; from tests.unit import test_local_process as t;"
        "t.server(Path(sys.argv[1]), t.READY_THEN_SLEEP).start()"
    )
    subprocess.run([sys.executable, "-c", starter, str(tmp_path)], check=True, cwd=Path(__file__).parents[2])
    made = server(tmp_path, READY_THEN_SLEEP)
    assert state(made) == "running"
    made.stop()
    assert state(made) == "stopped"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "its log is empty"),
        ("a\nb\n\n", "b"),
        ("ERROR no space left\n  at x.Error(Y.java)\nshutting down\n", "ERROR no space left"),
        ("java.net.BindException: in use\n\tat sun.nio.Exception\n", "java.net.BindException: in use"),
    ],
)
def test_the_last_meaningful_line_names_the_error(log: str, line: str) -> None:
    """An error beats what comes after it, and a stack trace is not one."""
    assert last_meaningful_line(log) == line
