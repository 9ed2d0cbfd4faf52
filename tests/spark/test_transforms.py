from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.errors import TransformError
from tidegate.spark.transforms import find_transform

SOURCE = "def same(records):\n    return records\n\nnumber = 1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of transforms with the package `shaping`; `sys.path` is restored."""
    before = list(sys.path)
    package = tmp_path / "shaping"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "plain.py").write_text(SOURCE)
    (package / "declared.py").write_text(f'__version__ = "2.1"\n{SOURCE}')
    (package / "broken.py").write_text("def same(records)\n")
    (package / "needy.py").write_text("import a_module_that_nobody_has\n")
    yield tmp_path
    sys.path[:] = before


def test_a_transform_is_found_by_module_and_function(folder: Path) -> None:
    """The function is the module's own."""
    transform = find_transform("shaping.plain:same", folder)
    assert transform.function("anything") == "anything"  # type: ignore[arg-type]


def test_its_version_is_the_hash_of_the_modules_source(folder: Path) -> None:
    """Other code is another version."""
    digest = hashlib.sha256(SOURCE.encode()).hexdigest()[:12]
    assert find_transform("shaping.plain:same", folder).identity == f"shaping.plain:same@{digest}"


def test_a_declared_version_is_taken(folder: Path) -> None:
    """`__version__` says that changes of the source, or of what it imports, matter or not."""
    assert find_transform("shaping.declared:same", folder).identity == "shaping.declared:same@2.1"


def test_a_module_of_the_same_name_in_another_folder_is_not_taken(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The folder asked for decides, whatever was imported before."""
    find_transform("shaping.plain:same", folder)
    other = tmp_path_factory.mktemp("other")
    (other / "shaping").mkdir()
    (other / "shaping" / "__init__.py").touch()
    (other / "shaping" / "plain.py").write_text("def other(records):\n    return records\n")
    assert find_transform("shaping.plain:other", other).name == "shaping.plain:other"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("shaping.plain", "named module:function"),
        ("shaping/plain.py:same", "named module:function"),
        ("shaping.plain:same()", "named module:function"),
        (":same", "named module:function"),
        ("shaping.absent:same", "no module shaping.absent"),
        ("absent:same", "no module absent"),
        ("shaping.plain:other", "no function other"),
        ("shaping.plain:number", "no function number"),
        ("shaping.broken:same", "SyntaxError"),
        ("shaping.needy:same", "a_module_that_nobody_has"),
    ],
)
def test_each_wrong_name_or_module_is_told_with_its_fix(folder: Path, name: str, told: str) -> None:
    """Name, module, function and import errors are told apart."""
    with pytest.raises(TransformError, match=told) as caught:
        find_transform(name, folder)
    assert caught.value.fix
    assert caught.value.fields["transform"] == name
