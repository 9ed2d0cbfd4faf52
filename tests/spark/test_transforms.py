from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidegate.core.model.errors import SparkJobFailed, TransformError
from tidegate.spark.transforms import find_transform

SHAPES = """\
from functools import cache, wraps
def with_day(function):
    @wraps(function)
    def inner(records): return function(records, 1)
    return inner
def asking_day(function):
    @wraps(function)
    def inner(records, day): return function(records)
    return inner
@with_day
def given(records, day): return records
@asking_day
def asked(records): return records
@cache
def cached(records, day): return records
def odd(records): return records
odd.__signature__ = "of no use"
def none(): return 1
def two(records, day): return records
def default(records, day=1): return records
def variable(*records): return records[0]
"""
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
    (package / "shapes.py").write_text(SHAPES)
    (package / "needy.py").write_text("import a_module_that_nobody_has\n")
    yield tmp_path
    sys.path[:] = before
    for name in [name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]


def test_a_transform_is_a_function_of_a_module_and_its_version_the_hash_of_the_source_or_what_it_declares(
    folder: Path,
) -> None:
    """`__version__` says that changes of the source, or of what it imports, matter or not."""
    transform = find_transform("shaping.plain:same", folder)
    assert transform.function("anything") == "anything"  # type: ignore[arg-type]
    digest = hashlib.sha256(SOURCE.encode()).hexdigest()[:12]
    assert transform.identity == f"shaping.plain:same@{digest}"
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
        ("shaping.shapes:none", r"parameters are \(\)"),
        ("shaping.shapes:two", r"parameters are \(records, day\)"),
        ("shaping.shapes:asked", r"parameters are \(records, day\)"),
        ("shaping.shapes:cached", r"parameters are \(records, day\)"),
    ],
)
def test_each_wrong_name_or_module_is_told_with_its_fix(folder: Path, name: str, told: str) -> None:
    """Name, module, function and import errors are told apart."""
    with pytest.raises(TransformError, match=told) as caught:
        find_transform(name, folder)
    assert caught.value.fix
    assert caught.value.fields["transform"] == name


@pytest.fixture
def edited(folder: Path) -> Callable[[str, str], None]:
    """Writes a module of the folder, and keeps the file's time: nothing but the text says that it is another."""

    def write(name: str, text: str) -> None:
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        os.utime(file, (1_000_000_000, 1_000_000_000))

    return write


def test_a_transform_may_have_more_parameters_with_defaults(folder: Path) -> None:
    """It is called with the records alone, and judged by what is called, not by what a decorator wraps."""
    for function in ("default", "variable", "given", "odd"):
        assert find_transform(f"shaping.shapes:{function}", folder).function("anything") == "anything"  # type: ignore[arg-type]


def result(folder: Path, name: str = "orders:orders") -> tuple[object, str]:
    """What the transform returns, and its version."""
    found = find_transform(name, folder)
    return found.function(None), found.version  # type: ignore[arg-type]


def test_the_version_is_that_of_the_code_that_runs(folder: Path, edited: Callable[[str, str], None]) -> None:
    """A module that was edited after it was imported is imported anew; one as long and as old as the last, too."""
    edited("orders.py", "def orders(records):\n    return 1\n")
    one = result(folder)
    edited("orders.py", "def orders(records):\n    return 2\n")
    two = result(folder)
    assert (one[0], two[0]) == (1, 2)
    assert two[1] == hashlib.sha256((folder / "orders.py").read_bytes()).hexdigest()[:12] != one[1]


def test_a_module_that_others_imported_before_is_imported_anew(folder: Path, edited: Callable[[str, str], None]) -> None:
    """A task is forked from a process that may have imported the module days ago, in whatever way."""
    sys.path.insert(0, str(folder))
    edited("early.py", "def orders(records):\n    return 1\n")
    importlib.import_module("early")
    edited("early.py", "def orders(records):\n    return 2\n")
    assert result(folder, "early:orders")[0] == 2


@pytest.mark.parametrize(
    "importing",
    [
        "from units import scale\ndef orders(records):\n    return scale()\n",
        "import units\ndef orders(records):\n    return units.scale()\n",
        "def orders(records):\n    from units import scale\n    return scale()\n",
        "from middle import scale\ndef orders(records):\n    return scale()\n",
        "from kit import units\ndef orders(records):\n    return units.scale()\n",
        "from kit.units import scale\ndef orders(records):\n    return scale()\n",
        "from importlib import import_module\nunits = import_module('units')\ndef orders(records):\n    return units.scale()\n",
        "from round import scale\ndef orders(records):\n    return scale()\n",
    ],
)
def test_a_changed_neighbour_is_another_version_and_runs(
    folder: Path, edited: Callable[[str, str], None], importing: str
) -> None:
    """What a transform imports of the folder, directly or not, at once or later, is part of it."""
    edited("orders.py", importing)
    edited("middle.py", "from units import scale\n")
    edited("round.py", "from units import scale\ndef back():\n    from orders import orders\n    return orders\n")
    edited("kit/__init__.py", '"""A kit."""\n')
    versions = set()
    for value in (1, 2):
        edited("units.py", f"def scale():\n    return {value}\n")
        edited("kit/units.py", f"def scale():\n    return {value}\n")
        found = result(folder)
        assert found[0] == value
        assert found == result(folder)
        versions.add(found[1])
    assert len(versions) == 2


def test_relative_imports_and_packages_with_code_count(folder: Path, edited: Callable[[str, str], None]) -> None:
    """A docstring is no code."""
    edited(
        "kit/orders.py", "from . import limit\ndef orders(records):\n    from .units import scale\n    return scale(), limit\n"
    )
    edited("kit/units.py", "def scale():\n    return 1\n")
    edited("kit/__init__.py", "limit = 5\n")
    before = result(folder, "kit.orders:orders")
    edited("kit/__init__.py", "limit = 6\n")
    after = result(folder, "kit.orders:orders")
    assert (before[0], after[0]) == ((1, 5), (1, 6))
    edited("kit/units.py", "def scale():\n    return 2\n")
    last = result(folder, "kit.orders:orders")
    assert last[0] == (2, 6)
    assert len({before[1], after[1], last[1]}) == 3
    edited("kit/alone.py", SOURCE)
    edited("kit/__init__.py", '"""Only words."""\n')
    digest = hashlib.sha256(SOURCE.encode()).hexdigest()[:12]
    assert find_transform("kit.alone:same", folder).version == digest
    edited("kit/__init__.py", '"""Other words."""\n')
    assert find_transform("kit.alone:same", folder).version == digest


def test_a_version_holds_nothing_that_another_transform_imports(folder: Path, edited: Callable[[str, str], None]) -> None:
    """Whichever was imported before it; nor what a transform imports by name while it runs."""
    edited("units.py", "def scale():\n    return 1\n")
    edited("orders.py", "from units import scale\ndef orders(records):\n    return scale()\n")
    edited("late.py", "import importlib\ndef late(records):\n    return importlib.import_module('units').scale()\n")
    digest = hashlib.sha256((folder / "late.py").read_bytes()).hexdigest()[:12]
    for _ in range(2):
        assert result(folder, "late:late") == (1, digest)
    assert result(folder)[1] != digest
    assert result(folder, "late:late") == (1, digest)


def test_modules_that_did_not_change_are_imported_once(folder: Path, edited: Callable[[str, str], None]) -> None:
    """The same function is found again, unless somebody has dropped its module."""
    edited("orders.py", "def orders(records):\n    return 1\n")
    found = find_transform("orders:orders", folder)
    assert find_transform("orders:orders", folder).function is found.function
    del sys.modules["orders"]
    assert find_transform("orders:orders", folder).version == found.version


def test_a_package_without_a_file_may_hold_transforms(folder: Path, edited: Callable[[str, str], None]) -> None:
    """Python's namespace packages."""
    for value in (1, 2):
        edited("space/orders.py", f"from space import more\ndef orders(records):\n    return {value}, more.x\n")
        edited("space/more.py", "x = 3\n")
        assert result(folder, "space.orders:orders")[0] == (value, 3)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("os:system", "os is a module of Python itself"),
        ("os.path:join", "os.path is a module of Python itself"),
        ("this:s", "this is a module of Python itself"),
        ("pyspark.sql:DataFrame", "no module pyspark.sql in"),
        ("subject:system", "defined in posix, which is not a module in"),
        ("subject:call", "defined in posix, which is not a module in"),
        ("subject:DataFrame", "defined in pyspark.sql.dataframe, which is not a module in"),
        ("subject:__loader__", "no function __loader__"),
        ("subject.__init__:orders", "no module subject.__init__"),
        ("shaping.__init__:orders", "no module shaping.__init__"),
        ("linked:same", "is a link to"),
        ("linked_kit.secret:same", "is a link to"),
        ("compiled:same", "no module compiled"),
    ],
)
def test_nothing_but_functions_of_source_files_in_the_folder_is_imported_or_called(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, name: str, told: str
) -> None:
    """Not Python's modules, not installed ones, not what a module imports, not what a link leads to."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.py").write_text(f"open({str(outside / 'was_imported')!r}, 'w').close()\n{SOURCE}")
    (folder / "linked.py").symlink_to(outside / "secret.py")
    (folder / "linked_kit").symlink_to(outside)
    (folder / "os.py").write_text("def system(records):\n    return records\n")
    (folder / "subject.py").write_text(
        "from os import system\nfrom functools import partial\nfrom pyspark.sql import DataFrame\ncall = partial(system)\n"
    )
    (folder / "compiled.pyc").write_bytes(b"")
    with pytest.raises(TransformError, match=told):
        find_transform(name, folder)
    assert not (outside / "was_imported").exists()
    assert sys.modules["os"].__file__ != str(folder / "os.py")


def test_a_function_of_a_neighbour_or_with_arguments_given_is_a_transform(
    folder: Path, edited: Callable[[str, str], None]
) -> None:
    """What counts is that its code is in the folder."""
    edited("units.py", "def scale(factor, records=None):\n    return factor\n")
    edited("orders.py", "from functools import partial\nfrom units import scale\norders = partial(scale, 3)\n")
    assert result(folder)[0] == 3
    assert find_transform("orders:scale", folder).name == "orders:scale"


def test_what_grpc_says_of_a_failed_plan_is_told_by_its_details(folder: Path, edited: Callable[[str, str], None]) -> None:
    """The transform fails, or Spark does: the class of the call is no reason."""
    edited(
        "orders.py",
        "def orders(details):\n"
        "    call = '<_MultiThreadedRendezvous of RPC that terminated with:\\n\\tstatus = StatusCode.UNKNOWN\\n'\n"
        '    raise RuntimeError(f\'{call}\\tdetails = "{details}"\\n\\tdebug_error_string = "x"\\n>\')\n',
    )
    transform = find_transform("orders:orders", folder)
    with pytest.raises(SparkJobFailed, match=r"Spark ran out of memory \(Java heap space\)"):
        transform("Java heap space")  # type: ignore[arg-type]
    with pytest.raises(TransformError, match="transform orders:orders fails: it broke"):
        transform("it broke")  # type: ignore[arg-type]
