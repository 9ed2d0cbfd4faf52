"""What every kind of test shares. It is set before any test module is imported, so all kinds can run in one process."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tidegate.testing.contracts", "tests.sender_contract")

settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("steady"), max_examples=10)  # for the loop while code is written
settings.load_profile("steady")

# Tests start many JVMs that live for minutes: compiled once and fast, they take a third less CPU than compiled well, and
# another fifth less where the classes of jars, whose sums were checked, are not verified. What is compiled has to fit into
# the code cache: where it does not, as in the 48 MB of this compiler, Java throws code away and compiles it again.
QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK)

# Airflow reads its settings when it is imported: a home of its own with no database, no connection, nothing of the user's.
HOME = Path(tempfile.mkdtemp(prefix="tidegate-airflow-"))
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/unused.db",
}


@pytest.fixture(scope="module", autouse=True)
def environment_as_before() -> Iterator[None]:
    """What the tests of a module, or pyspark for them, leave in the environment is gone after the last of them."""
    with patch.dict(os.environ):
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine function runs in an event loop of its own, for four minutes at most."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    async def run() -> None:
        async with asyncio.timeout(240):
            await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters})

    asyncio.run(run())
    return True


def pytest_unconfigure() -> None:
    """Leave nothing behind."""
    shutil.rmtree(HOME, ignore_errors=True)
