"""Java's version, and what becomes of Ivy's words; the jars themselves are resolved by the integration tests."""

from __future__ import annotations

import hashlib
import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tidegate.core.model.errors import PlatformError
from tidegate_local import jars

ROOT = Path(__file__).resolve().parents[2]


def fake_java(home: Path, version: str, resolves: str = "") -> Path:
    """A `java` that says that version of itself, and as Ivy does so: in the folder `$into`, which its last word names."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"""#!/bin/sh
[ "$1" = -version ] && echo 'openjdk version "{version}" 2025-01-01' >&2 && exit
for word; do into=${{word%%/\\[*}}; done
mkdir -p "$into"
{resolves}
""")
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


def test_a_good_java_on_the_path_beats_an_old_java_home(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old JAVA_HOME stops nobody who has a newer Java at hand. Without one it is named, and what to install."""
    with pytest.raises(PlatformError, match=r"No Java was found.*Install Java 17 or later"):
        jars.find_java()
    old, good = fake_java(no_java / "old", "11.0.2"), fake_java(no_java / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "old"))
    with pytest.raises(PlatformError, match=rf"{old} is Java 11, and .* need 17 or later"):
        jars.find_java()
    monkeypatch.setenv("PATH", f"{good.parent}:/usr/bin:/bin")
    assert jars.find_java() == good


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours first, then the user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(tmp_path / "ours"))
    assert jars.cache_dir() == tmp_path / "ours"
    monkeypatch.delenv("TIDEGATE_CACHE_DIR")
    assert jars.cache_dir() == tmp_path / "xdg" / "tidegate"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.cache_dir() == tmp_path / (".cache" if sys.platform == "linux" else "Library/Caches") / "tidegate"


def test_a_cache_that_cannot_be_written_is_named_with_the_way_out(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = cache.parents[2] / "file"
    file.touch()
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(file))
    with pytest.raises(PlatformError, match=r"cannot be kept in .*file/jars: Not a directory.*TIDEGATE_CACHE_DIR"):
        jars.ensure_jars()


def test_the_jars_have_a_folder_of_their_own_for_each_ivy_xml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ivy_xml = tmp_path / "ivy.xml"
    monkeypatch.setattr(jars, "_beside_this", lambda name: tmp_path / name)
    ivy_xml.write_text("<one/>")
    one = jars.locate_jars()
    ivy_xml.write_text("<two/>")
    assert jars.locate_jars() != one
    assert one.spark.parent == one.kafka.parent


JARS = {"kafka/k-1.jar": "kafka", "spark/s-1.jar": "spark", "spark/t-1.jar": "more"}


def fill(folder: Path, content: dict[str, str]) -> None:
    """Jars of that content."""
    for name, text in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def fake_ivy(folder: Path, content: dict[str, str]) -> str:
    """A Java home whose Ivy resolves these jars, or fails where there are none; returns the home."""
    fill(folder / "repository", content)
    resolves = f'cp -r "{folder}/repository/." "$into"' if content else "echo ':: org.x#lib;1.0: not found'; exit 1"
    return str(fake_java(folder / "java", "17.0.1", resolves).parents[1])


@pytest.fixture
def cache(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cached folder of a checkout that lists `JARS`; it is not there yet."""
    monkeypatch.setattr(jars, "_beside_this", lambda name: no_java / name)
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(no_java / "cache"))
    (no_java / "ivy.xml").write_text("<ivy-module/>")
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in JARS.items()}
    (no_java / "jars.sha256").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    monkeypatch.setenv("PATH", f"{no_java / 'path'}:/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "none"))
    monkeypatch.setattr(jars, "_java_candidates", lambda: [Path(os.environ["JAVA_HOME"]) / "bin" / "java"])
    return jars.locate_jars().spark.parent


def test_cached_jars_need_neither_java_nor_ivy(cache: Path) -> None:
    """What is there, and is what the sums say, is not resolved again."""
    fill(cache, JARS)
    said: list[str] = []
    assert jars.ensure_jars(lambda *words: said.extend(words)) == jars.locate_jars()
    assert said == ["jars", "ready"]


@pytest.mark.parametrize(
    ("name", "content", "damage"),
    [
        ("spark/s-1.jar", "spark, and a stranger's class", "differs"),
        ("kafka/k-1.jar", None, "is missing"),
        ("spark/a-0.jar", "first on the class path", "is not in jars.sha256"),
        ("spark/a-0.JAR", "on the class path too", "is not in jars.sha256"),
    ],
)
def test_a_damaged_cache_is_named_and_resolved_anew(
    cache: Path, no_java: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str | None, damage: str
) -> None:
    """A folder is believed by its content, never by its name."""
    fill(cache, {**JARS, name: content or ""})
    if content is None:
        (cache / name).unlink()
    monkeypatch.setenv("JAVA_HOME", fake_ivy(no_java, JARS))
    said: list[str] = []
    jars.ensure_jars(lambda _phase, state: said.append(state))
    assert said[0].startswith(f"resolving anew: {name} {damage}")
    assert said[1:] == ["ready"]
    assert {path.relative_to(cache).as_posix(): path.read_text() for path in cache.rglob("*.*")} == JARS


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ({**JARS, "spark/s-1.jar": "x"}, r"damaged \(spark/s-1.jar differs .*org\.x#lib;1\.0: not found.*Check the network"),
        ({}, r"org\.x#lib;1\.0: not found"),
    ],
)
def test_jars_that_cannot_be_resolved_are_not_used(
    cache: Path, no_java: Path, monkeypatch: pytest.MonkeyPatch, before: dict[str, str], message: str
) -> None:
    """The error names the damage, and why it cannot be repaired. Nobody takes half a set of jars for a whole one."""
    fill(cache, before)
    monkeypatch.setenv("JAVA_HOME", fake_ivy(no_java, {}))
    with pytest.raises(PlatformError, match=message):
        jars.ensure_jars()
    assert cache.exists() == bool(before)
    assert sorted(path.suffix for path in cache.parent.iterdir() if path != cache) == [".lock", ".log"]


@pytest.mark.parametrize("before", [{}, {**JARS, "spark/s-1.jar": "damaged"}])
def test_jars_that_a_repository_serves_otherwise_are_named_and_not_used(
    cache: Path, no_java: Path, monkeypatch: pytest.MonkeyPatch, before: dict[str, str]
) -> None:
    """A version says nothing about content; neither does what was in the cache before."""
    fill(cache, before)
    served = {name: text for name, text in JARS.items() if name != "spark/t-1.jar"}
    monkeypatch.setenv("JAVA_HOME", fake_ivy(no_java, {**served, "kafka/k-1.jar": "x", "kafka/new.jar": "y"}))
    with pytest.raises(PlatformError) as caught:
        jars.ensure_jars()
    for told in ("spark/t-1.jar is missing", "kafka/new.jar is not in", "kafka/k-1.jar differs", "~/.ivy2/cache"):
        assert told in str(caught.value)
    assert {path.relative_to(cache).as_posix(): path.read_text() for path in cache.rglob("*.*")} == before


@pytest.mark.parametrize("text", ["", "not a sum\n", f"{'0' * 64}  kafka/k-1.jar\n\n"])
def test_a_damaged_list_of_sums_vouches_for_nothing(cache: Path, no_java: Path, text: str) -> None:
    fill(cache, JARS)
    (no_java / "jars.sha256").write_text(text)
    with pytest.raises(PlatformError, match="not a list of SHA-256 sums"):
        jars.ensure_jars()


@pytest.mark.parametrize("folder", [ROOT, ROOT / "docker"])
def test_the_sums_are_of_the_jars_that_ivy_xml_names(folder: Path) -> None:
    """Whoever changes an `ivy.xml` without its sums finds out here."""
    listed = set(jars.read_sums(folder / "jars.sha256"))
    named = ET.parse(folder / "ivy.xml").iter("dependency")  # noqa: S314 - our own file
    assert {f"{d.attrib['conf'].split('->')[0]}/{d.attrib['name']}-{d.attrib['rev']}.jar" for d in named} <= listed
