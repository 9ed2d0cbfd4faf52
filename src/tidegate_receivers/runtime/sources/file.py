"""Takes each line that is appended to a file as a record, also when the file is rotated, packed or truncated.

A file is known by its content: its first bytes, and those before the place up to which it was read. So it is found under
another name, in a packed copy, and in the copy that `copytruncate` leaves; the inode only says where to look first. The place
up to which the broker has acknowledged everything is saved when the receiver first looks, and after each acknowledgement, by
writing another file and renaming it. So a line is landed at least once: after a crash the lines behind the saved place are read
again.
"""

from __future__ import annotations

import asyncio
import bz2
import contextlib
import glob
import gzip
import hashlib
import json
import lzma
import os
import re
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from tidegate.core.model.errors import ConfigError, RecordRefused, SourceUnavailable
from tidegate_receivers.rules.records import LineSplitter
from tidegate_receivers.runtime.intake import Ticket
from tidegate_receivers.runtime.receiver import RecordSource

CHUNK_BYTES = 131_072
HEAD_BYTES = 256
SECOND_NS = 1_000_000_000
UNPACKED_BY: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".lzma": lzma.open}
PACKED = (*UNPACKED_BY, ".zst", ".lz4", ".lzo", ".zip", ".Z", ".7z")
ROTATED = re.compile(rf"[.-](\d[\d.:_T-]*|old)({'|'.join(map(re.escape, PACKED))})?")
"""What rotation adds to a file's name. Others beside it are other files."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Up to where a file has been landed.

    Args:
        device: of the file.
        inode: of the file; 0: there was none when the receiver first looked.
        offset: bytes from its start.
        head: SHA-256 of its first bytes, at most 256, and none beyond the offset.
        modified_ns: when it had last been written, as far as it was read (epoch ns): files that follow it are not older.
        tail: SHA-256 of the bytes before the offset, at most 256.
    """

    device: int
    inode: int
    offset: int
    head: str
    modified_ns: int
    tail: str

    @property
    def since_ns(self) -> int:
        """No file that follows was written before this; what packs a file may cut its time to seconds."""
        return self.modified_ns // SECOND_NS * SECOND_NS


@dataclass(frozen=True)
class _File:
    """The file, or what rotation has made of one."""

    path: Path
    device: int
    inode: int
    modified_ns: int
    changed_ns: int

    @property
    def is_packed(self) -> bool:
        return self.path.suffix in PACKED

    def is_at(self, place: Place) -> bool:
        """Whether it is where the place was."""
        return (self.device, self.inode) == (place.device, place.inode)

    def holds(self, place: Place, *, done: bool) -> bool:
        """Whether it begins with what was read up to the place. Of one that cannot be unpacked only the time can tell that.

        Raises:
            FileNotFoundError: it was renamed meanwhile.
            SourceUnavailable: it cannot be read.
        """
        opaque = self.is_packed and self.path.suffix not in UNPACKED_BY
        if opaque and done and self.modified_ns // SECOND_NS * SECOND_NS == place.since_ns:
            return True
        with self._content() as content, self._errors():
            marks = _marks(content, place.offset)
            if done and not place.offset and not self.is_at(place):
                return not content.read(1)  # every file begins with nothing, but only an empty one ends there
        return marks == (place.head, place.tail)

    def open(self) -> IO[bytes]:
        """Its content as a plain file: of a packed one in a file without a name.

        Raises:
            FileNotFoundError, SourceUnavailable: as `holds`.
        """
        if not self.is_packed:
            return self._content()
        with self._content() as content, self._errors(), contextlib.ExitStack() as failing:
            plain = failing.enter_context(tempfile.TemporaryFile(buffering=0))
            shutil.copyfileobj(content, plain, CHUNK_BYTES)
            os.utime(plain.fileno(), ns=(self.modified_ns, self.modified_ns))
            failing.pop_all()
        return plain

    def _content(self) -> IO[bytes]:
        if not self.is_packed:
            opened = _open(self.path)
            about = os.fstat(opened.fileno())
            if (about.st_dev, about.st_ino) != (self.device, self.inode):
                opened.close()
                raise FileNotFoundError(self.path)
            return opened
        unpacked_by = UNPACKED_BY.get(self.path.suffix)
        if unpacked_by is None:
            raise self._unreadable("nothing here unpacks it")
        with self._errors():
            return cast("IO[bytes]", unpacked_by(self.path))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise self._unreadable(str(error)) from None

    def _unreadable(self, why: str) -> SourceUnavailable:
        fix = "Let the receiver read it"
        if self.is_packed:
            fix = f"Unpack it as {self.path.stem}, or move it away to go on without its lines"
        return SourceUnavailable(f"{self.path} may hold lines that were not read, and cannot be read: {why}", fix=fix)


@dataclass(eq=False, kw_only=True)
class FileSource(RecordSource):
    r"""Lines of a file that grows; a line ends with `\n` or `\r\n`.

    A rotated file is read to its end before its successor, which is looked for in the same folder under a longer name
    (`app.log.1`, `app.log.2.gz`). A file that is shorter than what was read of it, or holds other bytes, has been truncated:
    its copy is read on where there is one, then the file from its start.

    Args:
        path: the file; it may come later.
        state_path: where the place is saved; each file needs one of its own.
        poll_s: seconds between two looks at the end of the file.
        linger_s: a rotated file is finished when nothing was appended to it for so many seconds: its writer may notice late.

    Raises:
        ConfigError: the two paths are one.
    """

    resumes = True

    path: Path
    state_path: Path
    poll_s: float = 0.2
    linger_s: float = 1.0

    def __post_init__(self) -> None:
        self.path, self.state_path = Path(self.path), Path(self.state_path)
        if self.path.resolve() == self.state_path.resolve():
            raise ConfigError("path and state_path are the same file", fix="Name another file in state_path")

    async def on_start(self) -> None:
        """As `RecordSource`."""
        place = self._load()
        if place is None:  # what rotates before the first acknowledgement is looked for from here
            place = self._begin()
            self._write(place)
        self.spawn(self._follow(place))

    # ---- which file, and from where

    def _begin(self) -> Place:
        """The start of the file; of none, where there is none yet."""
        try:
            with _open(self.path) as opened:
                return _place(opened, 0)
        except FileNotFoundError:
            return Place(device=0, inode=0, offset=0, head=_hash(b""), modified_ns=time.time_ns(), tail=_hash(b""))

    async def _follow(self, place: Place) -> None:
        """Read one file after the other."""
        done, looked = False, None
        while True:
            files = self._files()
            if files == looked:
                await asyncio.sleep(self.poll_s)
                continue
            look = asyncio.get_running_loop().run_in_executor(None, partial(self._next, files, place, done=done))
            try:
                opened, offset = await asyncio.shield(look)
            except asyncio.CancelledError:  # the thread goes on
                look.add_done_callback(_closed)
                raise
            except FileNotFoundError:  # renamed meanwhile
                await asyncio.sleep(self.poll_s)
                continue
            if opened is None:
                done, looked = True, files
                continue
            looked = None
            with opened:
                place, done = await self._read(opened, offset)

    def _next(self, files: Sequence[_File], place: Place, *, done: bool) -> tuple[IO[bytes] | None, int]:
        """What to read on, open, and where in it: the file of the place or, where it is done, what follows it.

        Args:
            files: the oldest first.
            place: up to where everything was read.
            done: whether its file was read to the end.

        Raises:
            FileNotFoundError: it was renamed meanwhile.
            SourceUnavailable: a file that may hold lines that were not read cannot be.
        """
        at = next((at for at, file in enumerate(files) if file.is_at(place) and file.holds(place, done=done)), None)
        if at is None:
            others = (at for at, file in enumerate(files) if file.modified_ns >= place.since_ns and not file.is_at(place))
            at = next((at for at in others if files[at].holds(place, done=done)), None)
        if at is not None and not done:
            return files[at].open(), place.offset
        if at is not None:
            after = files[at + 1 :]
        elif after := [file for file in files if file.is_at(place)][:1]:
            self.report_error(f"{after[0].path} was truncated: it is read from its start")
        else:
            if place.inode and not done:
                self.report_error(
                    f"the file that was read up to byte {place.offset} is gone: what follows is read from its start"
                )
            after = [file for file in files if file.path == self.path or file.modified_ns >= place.since_ns]
        return (after[0].open() if after else None), 0

    def _files(self) -> list[_File]:
        """The file and those that were rotated away, oldest first."""
        found = self._listed()
        while (again := self._listed()) != found:  # a folder that is listed while its files are renamed may lack one
            found = again
        return found

    def _listed(self) -> list[_File]:
        found = []
        for path in (*self.path.parent.glob(f"{glob.escape(self.path.name)}?*"), self.path):
            if path != self.path and not ROTATED.fullmatch(path.name.removeprefix(self.path.name)):
                continue
            if path.suffix in PACKED and path != self.path and path.with_suffix("").exists():
                continue  # it is being packed
            with contextlib.suppress(FileNotFoundError):  # rotated meanwhile
                about = path.stat()
                if path == self.path or stat.S_ISREG(about.st_mode):
                    found.append(_File(path, about.st_dev, about.st_ino, about.st_mtime_ns, about.st_ctime_ns))
        return sorted(found, key=lambda file: (file.path == self.path, file.modified_ns, file.changed_ns))

    # ---- one file

    async def _read(self, opened: IO[bytes], offset: int) -> tuple[Place, bool]:
        """Store what the file holds and what is appended to it, until another file has taken its name.

        Returns:
            Up to where it was read, and whether that is its end; otherwise it has been truncated.
        """
        longest = self.intake.receiver.max_record_bytes
        splitter, seen_s = LineSplitter(longest), time.monotonic()
        place = _place(opened, offset)  # behind the last line that was stored
        while True:
            modified_ns = os.fstat(opened.fileno()).st_mtime_ns
            chunk = await asyncio.to_thread(os.pread, opened.fileno(), CHUNK_BYTES, offset)
            if chunk:
                seen_s = time.monotonic()
                lines = splitter.feed(chunk)
                landed = offset + chunk.rindex(b"\n") + 1 if b"\n" in chunk else place.offset
                offset += len(chunk)
                place = replace(_place(opened, landed), modified_ns=modified_ns)
                if lines:
                    await self._land(lines, place)
                if refused := splitter.refused():
                    self.refuse(refused, f"{self.path} has a line of more than {longest} bytes")
            elif not self._is_replaced(opened):
                seen_s = time.monotonic()
                await asyncio.sleep(self.poll_s)
            elif time.monotonic() - seen_s < self.linger_s:
                await asyncio.sleep(self.poll_s)
            else:
                if splitter.open_bytes:
                    self.refuse(1, f"{self.path} was rotated in the middle of a line")
                return _place(opened, offset), True
            if os.fstat(opened.fileno()).st_size < offset or _marks(opened, place.offset) != (place.head, place.tail):
                return place, False

    async def _land(self, lines: list[bytes], place: Place) -> None:
        ticket = await self.store(lines, stream=self.intake.instance)

        def save(done: Ticket) -> None:
            if (error := done.exception()) is None or isinstance(error, RecordRefused):  # else the next lease reads it again
                self._write(place)

        ticket.add_done_callback(save)

    def _is_replaced(self, opened: IO[bytes]) -> bool:
        """Whether the path is another file now."""
        try:
            about = self.path.stat()
        except FileNotFoundError:
            return False  # it may be on its way
        mine = os.fstat(opened.fileno())
        return (about.st_dev, about.st_ino) != (mine.st_dev, mine.st_ino)

    # ---- the place

    def _write(self, place: Place) -> None:
        written = self.state_path.with_name(f"{self.state_path.name}.new")
        try:
            written.write_text(json.dumps(asdict(place)), encoding="utf-8")
            written.replace(self.state_path)
        except OSError as failure:
            self.report_error(f"the place in {self.path} cannot be saved in {self.state_path}", failure)

    def _load(self) -> Place | None:
        try:
            return Place(**json.loads(self.state_path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise SourceUnavailable(
                f"{self.state_path} holds no saved position: {type(error).__name__}",
                fix="Delete it to read the file from its start",
            ) from None


def _open(path: Path) -> IO[bytes]:
    """A plain file. Raises FileNotFoundError; SourceUnavailable: it is none, or may not be read."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would wait for its writer
    except FileNotFoundError:
        raise
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise SourceUnavailable(f"{path} cannot be opened: {why}", fix="Let the receiver read it") from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise SourceUnavailable(f"{path} is not a regular file", fix="Name a file that grows")
    return os.fdopen(opened, "rb", buffering=0)


def _closed(look: asyncio.Future[tuple[IO[bytes] | None, int]]) -> None:
    """What was opened and nobody waits for any more."""
    if not look.exception() and (opened := look.result()[0]) is not None:
        opened.close()


def _place(opened: IO[bytes], offset: int) -> Place:
    """An offset in a file that was read up to it."""
    about = os.fstat(opened.fileno())
    head, tail = _marks(opened, offset) or ("", "")
    return Place(device=about.st_dev, inode=about.st_ino, offset=offset, head=head, modified_ns=about.st_mtime_ns, tail=tail)


def _marks(content: IO[bytes], offset: int) -> tuple[str, str] | None:
    """Of the first bytes and of those before the offset, by which a file is known; None: it is shorter."""
    count = min(HEAD_BYTES, offset)
    content.seek(0)
    head = content.read(count)
    content.seek(offset - count)
    tail = content.read(count)
    return None if len(tail) < count else (_hash(head), _hash(tail))


def _hash(part: bytes) -> str:
    return hashlib.sha256(part).hexdigest()
