"""Java, and the jars that are not on PyPI.

Rules: nothing is downloaded but by Ivy, which pyspark ships; what `ivy.xml` describes is cached outside the repository
under a name made from its content, so that a changed file resolves anew and every checkout shares the rest. A folder is
believed by its content, never by its name: each use compares the SHA-256 of every jar with `jars.sha256`, which is kept
in the repository (120 MB take 0.1 to 0.4 s). A folder that differs is resolved anew; what was resolved is used only when
it is exactly what the file lists.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from tidegate.core.model.errors import PlatformError, some
from tidegate_local.process import Report, silent

MINIMUM_JAVA = 17
TOKEN_PROVIDER_VERSION = "4.0.0"  # noqa: S105 - a jar's version
RESOLVE_TIMEOUT_S = 900.0
SUMS = "jars.sha256"


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
    version = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if version is None:
        return None
    major, minor = int(version[1]), int(version[2] or 0)
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
    return Path(configured).expanduser().absolute() if configured else user_cache_path("tidegate")


def ensure_jars(report: Report = silent) -> Jars:
    """The jars of `ivy.xml`, each with the SHA-256 that `jars.sha256` lists; resolved where the cache does not hold them so.

    Raises:
        PlatformError: there is no usable Java, Ivy could not resolve or download something, or what it resolved is not what
            `jars.sha256` lists.
    """
    ivy_xml = _beside_this("ivy.xml")
    expected = read_sums(_beside_this(SUMS))
    located = locate_jars()
    folder = located.spark.parent
    if _is_complete(folder, expected):
        report("jars", "ready")
        return located
    with _lock(folder):
        # another process may have been first, and this one may have looked while that one replaced the folder
        if not _is_complete(folder, expected):
            damage = some(faults(folder, expected)) if folder.is_dir() else ""
            report("jars", f"resolving anew: {damage}" if damage else "resolving")
            _resolve(ivy_xml, folder, expected, damage)
    report("jars", "ready")
    return located


def update_sums(report: Report = silent) -> list[str]:
    """Resolve `ivy.xml` of the checkout and that of `docker/`, and write the SHA-256 of their jars into a `jars.sha256` each.

    For maintainers who changed an `ivy.xml`: it believes what the repositories serve now. Returns what changed in the files.

    Raises:
        PlatformError: this is not a checkout, or as `ensure_jars` does.
    """
    root = Path(__file__).resolve().parents[2]
    changed: list[str] = []
    for folder in (root, root / "docker"):
        ivy_xml, sums = folder / "ivy.xml", folder / SUMS
        if not ivy_xml.is_file():
            raise PlatformError(f"There is no {ivy_xml}", fix="Run it in a checkout of Tidegate")
        report("jars", f"resolving {ivy_xml}")
        log = cache_dir() / "jars" / "update.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as filling:
            _run_ivy(ivy_xml, Path(filling), log)
            resolved = _sums_of(Path(filling))
        before = read_sums(sums) if sums.is_file() else {}
        sums.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(resolved.items())))
        changed += [f"removed {name}" for name in sorted(before.keys() - resolved.keys())]
        changed += [f"added {name}" for name in sorted(resolved.keys() - before.keys())]
        changed += [f"CHANGED {name}" for name in sorted(before.keys() & resolved.keys()) if before[name] != resolved[name]]
    return changed


def read_sums(file: Path) -> dict[str, str]:
    """The SHA-256 of each jar by its path, from a file as `sha256sum` writes it.

    Raises:
        PlatformError: it is not such a file.
    """
    lines = [re.fullmatch(r"([0-9a-f]{64})  (\S+\.jar)", line) for line in file.read_text().splitlines()]
    if not lines or None in lines:
        raise PlatformError(f"{file} is not a list of SHA-256 sums", fix="Restore it: `git restore` it, or reinstall tidegate")
    return {line[2]: line[1] for line in lines if line is not None}


def faults(folder: Path, expected: Mapping[str, str]) -> list[str]:
    """What in the folder is not as `expected` says: each jar that differs, is missing, or is not listed."""
    sums = _sums_of(folder)
    return [
        *(f"{name} is missing" for name in sorted(expected.keys() - sums.keys())),
        *(f"{name} is not in {SUMS}" for name in sorted(sums.keys() - expected.keys())),
        *(f"{name} differs from {SUMS}" for name in sorted(sums.keys() & expected.keys()) if sums[name] != expected[name]),
    ]


def locate_jars() -> Jars:
    """Where `ensure_jars` keeps the jars of this `ivy.xml`, whether they were resolved or not."""
    digest = hashlib.sha256(_beside_this("ivy.xml").read_bytes() + TOKEN_PROVIDER_VERSION.encode()).hexdigest()[:12]
    folder = cache_dir() / "jars" / digest
    return Jars(spark=folder / "spark", kafka=folder / "kafka")


def _java_candidates() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    in_home = [Path(home) / "bin" / "java"] if home else []
    return in_home + ([Path(on_path)] if on_path else [])


@functools.cache
def _java_version_of(java: Path) -> int | None:
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    # macOS has a `java` that only asks to install one: it prints no version
    return parse_java_version(done.stderr + done.stdout)


def _beside_this(name: str) -> Path:
    this = Path(__file__).resolve()
    # the wheel carries the file beside this module; a checkout has it at its root: src/tidegate_local/ is two below
    for candidate in (this.with_name(name), this.parents[2] / name):
        if candidate.is_file():
            return candidate
    raise PlatformError(f"{name} is neither in the installed package nor at the root of the checkout", fix="Reinstall tidegate")


def _is_complete(folder: Path, expected: Mapping[str, str]) -> bool:
    return folder.is_dir() and not faults(folder, expected)


def _sums_of(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below the folder that is on a class path, by its path."""
    sums = {}
    for jar in sorted(folder.rglob("*.[jJ][aA][rR]")):
        with contextlib.suppress(OSError), jar.open("rb") as content:
            sums[jar.relative_to(folder).as_posix()] = hashlib.file_digest(content, "sha256").hexdigest()
    return sums


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One process at a time fills or replaces the folder."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        held = FileLock(f"{folder}.lock").acquire()
    except OSError as error:
        raise PlatformError(
            f"The jars cannot be kept in {folder.parent}: {error.strerror}", fix="Set TIDEGATE_CACHE_DIR to a folder of yours"
        ) from error
    with held:
        yield


def _resolve(ivy_xml: Path, folder: Path, expected: Mapping[str, str], damage: str) -> None:
    """Fill the folder, or replace a damaged one: a JVM that runs keeps the files that it has open."""
    filling = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    log = folder.parent / f"{folder.name}.log"
    try:
        try:
            _run_ivy(ivy_xml, filling / "new", log)
        except PlatformError as error:
            if damage:
                message = f"The cached jars are damaged ({damage}), and were not replaced. {error.message}"
                raise PlatformError(message, fix=error.fix, **error.fields) from error
            raise
        differences = faults(filling / "new", expected)
        if differences:
            raise PlatformError(
                f"What Ivy resolved is not what {SUMS} lists: {some(differences, separator='; ')}; nothing of it is used "
                f"(see {log})",
                fix="Remove Ivy's own cache (~/.ivy2/cache) and run `tidegate jars` again; if the message is the same, the"
                " repository that Ivy asked serves other files",
                log=log,
            )
        if folder.is_dir():
            folder.rename(filling / "old")
        (filling / "new").rename(folder)
    finally:
        shutil.rmtree(filling, ignore_errors=True)


def _run_ivy(ivy_xml: Path, into: Path, log: Path) -> None:
    java = find_java()
    ivy = next((pyspark_home() / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        raise PlatformError(
            "The installed pyspark has no ivy-*.jar", fix="Run `make venv` to get the locked version of pyspark"
        )
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
    if done.returncode != 0 or not any(into.rglob("*.jar")):
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
