"""The platform's Iceberg catalog in the process of the tests, whichever of them comes first."""

from __future__ import annotations

import pytest
from pyiceberg.utils.config import Config

from tidegate_local.platform import Platform


def let_pyiceberg_find(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test ends. PyIceberg reads its environment once, when it is imported."""
    for name, value in platform.environment().items():
        if name.startswith("PYICEBERG"):
            monkeypatch.setenv(name, value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
