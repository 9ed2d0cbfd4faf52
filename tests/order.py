"""The order of a folder's tests, where it saves servers; tests of other folders stay where they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def reorder(items: list[pytest.Item], folder: Path, rank: Callable[[pytest.Item], int]) -> None:
    """Put the folder's tests in the order of their ranks; those of one rank keep theirs."""
    places = [place for place, item in enumerate(items) if item.path.is_relative_to(folder)]
    for place, item in zip(places, sorted((items[place] for place in places), key=rank), strict=True):
        items[place] = item
