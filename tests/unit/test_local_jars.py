"""Java's version, and what becomes of Ivy's words; the jars themselves are resolved by the integration tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import PlatformError
from tidegate.local import jars


def fake_java(folder: Path, version: str) -> Path:
    """A `java` that prints that version."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java; the folder is free for another one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_the_major_version_is_read_from_what_java_prints(text: str, version: int | None) -> None:
    """Old and new ways to count, and no Java at all."""
    assert jars.parse_java_version(text) == version


def test_no_java_is_one_clear_sentence(no_java: Path) -> None:
    """The error says what to install."""
    with pytest.raises(PlatformError, match="No Java was found") as caught:
        jars.find_java()
    assert "Install Java 17 or later" in str(caught.value)


def test_an_old_java_is_named_with_its_version(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one, how old, what is needed."""
    java = fake_java(no_java / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "old"))
    with pytest.raises(PlatformError, match=r"is Java 11, and .* need 17 or later") as caught:
        jars.find_java()
    assert str(java) in str(caught.value)


def test_a_good_java_on_the_path_beats_an_old_java_home(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old JAVA_HOME stops nobody who has a newer Java at hand."""
    fake_java(no_java / "old", "1.8.0_292")
    good = fake_java(no_java / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "old"))
    monkeypatch.setenv("PATH", f"{good.parent}:/usr/bin:/bin")
    assert jars.find_java() == good


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours first, then the user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(tmp_path / "ours"))
    assert jars.cache_dir() == tmp_path / "ours"
    monkeypatch.delenv("TIDEGATE_CACHE_DIR")
    assert jars.cache_dir() == tmp_path / "xdg" / "tidegate"


def test_the_jars_have_a_folder_of_their_own_for_each_ivy_xml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another description, another folder."""
    ivy_xml = tmp_path / "ivy.xml"
    monkeypatch.setattr(jars, "_ivy_xml", lambda: ivy_xml)
    ivy_xml.write_text("<one/>")
    one = jars.locate_jars()
    ivy_xml.write_text("<two/>")
    assert jars.locate_jars() != one
    assert one.spark.parent == one.kafka.parent


def test_cached_jars_need_neither_java_nor_ivy(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is not resolved again."""
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(no_java))
    jars.locate_jars().spark.mkdir(parents=True)
    said: list[tuple[str, str]] = []
    assert jars.ensure_jars(lambda phase, state: said.append((phase, state))) == jars.locate_jars()
    assert said == [("jars", "ready")]


def test_a_failed_resolution_leaves_no_folder_and_tells_the_gist(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes half a set of jars for a whole one."""
    java = no_java / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "17.0.1"\' >&2 && exit\n'
        "echo ':: org.x#lib;1.0: not found'\necho 'RuntimeException: there were unresolved dependencies'\nexit 1\n"
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(no_java / "java"))
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(no_java / "cache"))
    with pytest.raises(PlatformError, match=r"org\.x#lib;1\.0: not found"):
        jars.ensure_jars()
    assert not jars.locate_jars().spark.parent.exists()
    assert [path.suffix for path in (no_java / "cache" / "jars").iterdir()] == [".log"]


def test_the_gist_of_ivys_output_is_its_first_complaints() -> None:
    """Or its last line, or nothing."""
    assert jars.ivy_gist(":: loading\n\t\t:: a#b;1: not found\n\t\t:: a#b;1: not found\nend") == "a#b;1: not found"
    assert jars.ivy_gist("one\ntwo\n") == "two"
    assert jars.ivy_gist("") == "Ivy said nothing"


def test_pyspark_is_found_without_importing_it() -> None:
    """Its folder holds the jars."""
    assert (jars.pyspark_home() / "jars").is_dir()
