"""Fail points: nothing unless asked for, and then once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.failpoints import arm, disarm, reached
from tidegate.failpoints import VARIABLE, reach

REACH = "from tidegate.failpoints import reach; reach('before-range'); print('alive')"


def run(folder: Path | None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if folder is not None:
        environment[VARIABLE] = str(folder)
    return subprocess.run([sys.executable, "-c", REACH], env=environment, capture_output=True, text=True, check=False)


def test_a_point_is_passed_unless_the_environment_names_a_folder(tmp_path: Path) -> None:
    """Also where somebody has armed it."""
    arm(tmp_path, "before-range", "kill")
    assert run(None).stdout == "alive\n"
    assert reached(tmp_path, "before-range") is None


def test_an_armed_point_kills_the_first_process_that_reaches_it_and_no_other(tmp_path: Path) -> None:
    """Who it was can be read afterwards."""
    arm(tmp_path, "before-range", "kill")
    assert run(tmp_path).returncode == -signal.SIGKILL
    found = reached(tmp_path, "before-range")
    assert found is not None
    assert found[1] == os.getpid()
    assert run(tmp_path).stdout == "alive\n"


def test_a_point_may_stop_the_process_until_somebody_lets_it_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP goes to the process itself."""
    sent: list[tuple[int, int]] = []
    monkeypatch.delenv(VARIABLE, raising=False)
    reach("after-write")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    arm(tmp_path, "after-write", "stop")
    reach("before-write")
    reach("after-write")
    reach("after-write")
    assert sent == [(os.getpid(), signal.SIGSTOP)]
    assert reached(tmp_path, "after-write") == (os.getpid(), os.getppid())


def test_a_point_that_is_armed_again_forgets_who_reached_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a disarmed one is passed."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    arm(tmp_path, "after-write", "stop")
    reach("after-write")
    arm(tmp_path, "after-write", "kill")
    assert reached(tmp_path, "after-write") is None
    disarm(tmp_path)
    reach("after-write")
    assert reached(tmp_path, "after-write") is None


def test_an_unknown_point_or_action_is_refused(tmp_path: Path) -> None:
    """A fault that is never reached would prove nothing."""
    with pytest.raises(ValueError, match="nowhere"):
        arm(tmp_path, "nowhere", "kill")
    with pytest.raises(ValueError, match="explode"):
        arm(tmp_path, "after-write", "explode")
