"""Values of a SQL answer as JSON and as text, and a missing library; the commands are shown by the integration tests."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli import main
from tidegate_local.cli.tools import _jsonable, _text


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (float("inf"), "inf"),
        (Decimal("1.50"), "1.50"),
        (date(2013, 1, 1), "2013-01-01"),
        (datetime(2013, 1, 1, 5, tzinfo=UTC), "2013-01-01T05:00:00+00:00"),
        (b"\xffa", "\\xffa"),
        ({"a": [{"b": Decimal(1)}]}, {"a": [{"b": "1"}]}),
        ([("k", float("nan"))], [["k", "nan"]]),
    ],
)
def test_every_value_of_an_answer_is_strict_json(value: Any, told: Any) -> None:
    """Nested ones too; nothing raises, and nothing becomes a number that JSON does not have."""
    assert _jsonable(value) == told
    json.dumps(_jsonable(value), allow_nan=False)


def test_text_shows_what_is_there() -> None:
    """NULL is not an empty text, and nested values are JSON."""
    assert [_text(value) for value in (None, "", "x", 3, {"a": "ü"})] == ["NULL", "", "x", "3", '{"a": "ü"}']


def test_a_library_that_is_missing_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Instead of a traceback; other commands run without."""
    monkeypatch.setitem(sys.modules, "psutil", None)
    for name in [name for name in sys.modules if name.startswith("tidegate_local.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "argv", ["tidegate", "status", "--project", str(tmp_path)])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert capsys.readouterr().err == "psutil is not installed: install Tidegate with its extra cli\n"
