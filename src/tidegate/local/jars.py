"""Java, and the jars that are not on PyPI.

Rules: nothing is downloaded but by Ivy, which pyspark ships; what `ivy.xml` describes is cached outside the repository
under a name made from its content, so that a changed file resolves anew and every checkout shares the rest; a folder
with that name is complete, since it is filled beside its place and then renamed.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import PlatformError
from tidegate.local.report import Report, silent

MINIMUM_JAVA = 17
TOKEN_PROVIDER_VERSION = "4.0.0"  # noqa: S105 - a jar's version
RESOLVE_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Jars:
    """Two folders of jars, one for each kind of JVM; each folder holds nothing else."""

    spark: Path
    kafka: Path


def find_java() -> Path:
    """The first Java of version 17 or later of JAVA_HOME and PATH.

    Raises:
        PlatformError: there is no Java, or only older ones.
    """
    too_old: list[tuple[Path, int]] = []
    for java in _java_candidates():
        version = _java_version_of(java)
        if version is not None and version >= MINIMUM_JAVA:
            return java
        if version is not None:
            too_old.append((java, version))
    fix = f"Install Java {MINIMUM_JAVA} or later and set JAVA_HOME to it"
    if too_old:
        java, version = too_old[0]
        raise PlatformError(
            f"{java} is Java {version}, and Spark 4 and Kafka 4 need {MINIMUM_JAVA} or later",
            fix=fix,
            java=java,
            version=version,
        )
    raise PlatformError("No Java was found, neither in JAVA_HOME nor on the PATH", fix=fix)


def parse_java_version(text: str) -> int | None:
    """The major version in what `java -version` prints: 17 of `"17.0.15"`, 8 of `"1.8.0_292"`; None when there is none."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major


def pyspark_home() -> Path:
    """The folder of the installed pyspark, found without importing it (an import costs a second).

    Raises:
        PlatformError: pyspark, with its jars, is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    home = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    if home is None or not (home / "jars").is_dir():
        raise PlatformError(
            "pyspark with its jars is not installed in this environment", fix="Run `make venv`, or install tidegate[spark]"
        )
    return home


def cache_dir() -> Path:
    """Where jars are kept between checkouts: TIDEGATE_CACHE_DIR, else `tidegate` in the user's cache folder."""
    configured = os.environ.get("TIDEGATE_CACHE_DIR")
    if configured:
        return Path(configured).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "tidegate"


def ensure_jars(report: Report = silent) -> Jars:
    """Resolve the jars of `ivy.xml` unless they are cached; the second call costs nothing.

    Raises:
        PlatformError: there is no usable Java, or Ivy could not resolve or download something.
    """
    located = locate_jars()
    folder = located.spark.parent
    if not folder.is_dir():
        report("jars", "resolving")
        _resolve(_ivy_xml(), folder)
    report("jars", "ready")
    return located


def locate_jars() -> Jars:
    """Where `ensure_jars` keeps the jars of this `ivy.xml`, whether they are there or not."""
    digest = hashlib.sha256(_ivy_xml().read_bytes() + TOKEN_PROVIDER_VERSION.encode()).hexdigest()[:12]
    folder = cache_dir() / "jars" / digest
    return Jars(spark=folder / "spark", kafka=folder / "kafka")


def _java_candidates() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    found = [Path(home) / "bin" / "java"] if home else []
    return found + ([Path(on_path)] if on_path else [])


@functools.cache
def _java_version_of(java: Path) -> int | None:
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    # macOS has a `java` that only asks to install one: it prints no version
    return parse_java_version(done.stderr + done.stdout)


def _ivy_xml() -> Path:
    here = Path(__file__).resolve()
    # the wheel carries the file beside this module; a checkout has it at its root: src/tidegate/local/ is three below
    for candidate in (here.with_name("ivy.xml"), here.parents[3] / "ivy.xml"):
        if candidate.is_file():
            return candidate
    raise PlatformError("ivy.xml is neither in the installed package nor at the root of the checkout", fix="Reinstall tidegate")


def _resolve(ivy_xml: Path, folder: Path) -> None:
    java = find_java()
    ivy = next((pyspark_home() / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        raise PlatformError(
            "The installed pyspark has no ivy-*.jar", fix="Run `make venv` to get the locked version of pyspark"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    filling = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    log = folder.parent / f"{folder.name}.log"
    try:
        _run_ivy(java, ivy, ivy_xml, filling, log)
        _take_place(filling, folder)
    finally:
        shutil.rmtree(filling, ignore_errors=True)


def _run_ivy(java: Path, ivy: Path, ivy_xml: Path, into: Path, log: Path) -> None:
    command = [str(java), f"-Dspark.token.provider.version={TOKEN_PROVIDER_VERSION}", "-jar", str(ivy)]
    command += ["-ivy", str(ivy_xml), "-types", "jar", "bundle"]
    command += ["-retrieve", f"{into}/[conf]/[artifact]-[revision].[ext]"]
    with log.open("wb") as output:
        try:
            done = subprocess.run(  # noqa: S603
                command, stdout=output, stderr=subprocess.STDOUT, timeout=RESOLVE_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise PlatformError(
                f"Ivy did not resolve the jars within {RESOLVE_TIMEOUT_S:.0f} s, see {log}",
                fix="Check the network and try again",
            ) from None
    if done.returncode != 0 or not any((into / "kafka").glob("*.jar")) or not any((into / "spark").glob("*.jar")):
        gist = ivy_gist(log.read_text(errors="replace"))
        raise PlatformError(
            f"The jars could not be resolved: {gist} (see {log})",
            fix="Check the network, or point Ivy at your mirror, and try again",
            log=log,
        )


def ivy_gist(output: str) -> str:
    """What went wrong, of Ivy's long output: the first three complaints, or its last line."""
    complaints: list[str] = []
    for raw in output.splitlines():
        line = raw.strip().strip(":").strip()
        if (
            re.search(r"unresolved dependency|not found|\bERROR|FAILED|Exception|timed out|refused", line)
            and line not in complaints
        ):
            complaints.append(line)
    if complaints:
        return "; ".join(complaints[:3])
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "Ivy said nothing"


def _take_place(filled: Path, folder: Path) -> None:
    try:
        filled.rename(folder)
    except OSError:
        # another process was first: what it put there is the same
        if not folder.is_dir():
            raise
