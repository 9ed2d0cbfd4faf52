"""Takes each line that is appended to a file as a record, also when the file is rotated or truncated.

A file is known by its device, its inode and its first bytes, since inodes are used again. The place up to which the broker has
acknowledged everything is saved after each acknowledgement, by writing another file and renaming it. So a line is landed at
least once: after a crash the lines behind the saved place are read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import hashlib
import json
import os
import re
import stat
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tidegate.core.errors import ConfigError, RecordRefused, SourceUnavailable
from tidegate.core.receivers.lines import LineSplitter
from tidegate.ingest.intake import Ticket
from tidegate.ingest.receiver import Receiver

CHUNK_BYTES = 131_072
HEAD_BYTES = 256
ROTATED = re.compile(r"[.-](\d[\d.:_T-]*|old)")
"""What rotation adds to a file's name. Others beside it are other files, and packed ones are copies of what was read."""


@dataclass(frozen=True)
class Place:
    """Up to where a file has been landed.

    Args:
        device: of the file.
        inode: of the file.
        offset: bytes from its start.
        head: SHA-256 of its first bytes, at most 256, and none beyond the offset.
        modified_ns: when it had last been written, as far as it was read (epoch ns): files that follow it are not older.
    """

    device: int
    inode: int
    offset: int
    head: str
    modified_ns: int = 0


@dataclass(eq=False)
class FileSource(Receiver):
    r"""Lines of a file that grows; a line ends with `\n` or `\r\n`.

    A rotated file is read to its end before its successor, which is looked for in the same folder under a longer name
    (`app.log.1`). A file that is shorter than what was read of it has been truncated, and is read from its start.

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
        """As `Receiver`."""
        self.spawn(self._follow(self._load()))

    # ---- which file, and from where

    async def _follow(self, place: Place | None) -> None:
        """Read one file after the other."""
        opened, offset = self._resume(place)
        while True:
            if opened is None:
                await asyncio.sleep(self.poll_s)
                opened, offset = _open(self.path), 0
                continue
            try:
                await self._read(opened, offset)
                done = os.fstat(opened)
            finally:
                os.close(opened)
            opened, offset = self._after(done.st_dev, done.st_ino, done.st_mtime_ns), 0

    def _resume(self, place: Place | None) -> tuple[int | None, int]:
        """The file to begin with, open, and where in it."""
        if place is None:
            return _open(self.path), 0
        for path in self._generations():
            opened = _open(path)
            if opened is None:
                continue
            about = os.fstat(opened)
            if (about.st_dev, about.st_ino) == (place.device, place.inode):
                if about.st_size >= place.offset and _head(opened, place.offset) == place.head:
                    return opened, place.offset
                self.report_error(f"{path} is not what was read up to byte {place.offset}: it is read from its start")
                return opened, 0
            os.close(opened)
        self.report_error(f"the file that was read up to byte {place.offset} is gone: what follows is read from its start")
        return self._after(place.device, place.inode, place.modified_ns), 0

    def _after(self, device: int, inode: int, modified_ns: int) -> int | None:
        """The file that follows one that is finished, open. Of one that is gone those follow that were written no earlier."""
        found = [(path, path.stat()) for path in self._generations()]
        numbers = [(about.st_dev, about.st_ino) for _, about in found]
        if (device, inode) in numbers:
            after = [path for path, _ in found[numbers.index((device, inode)) + 1 :]]
        else:
            after = [path for path, about in found if path == self.path or about.st_mtime_ns >= modified_ns]
        return _open(after[0]) if after else None

    def _generations(self) -> list[Path]:
        """The file and those that were rotated away, oldest first."""
        found: dict[Path, int] = {}
        for path in self.path.parent.glob(f"{glob.escape(self.path.name)}?*"):
            if ROTATED.fullmatch(path.name.removeprefix(self.path.name)) and path.is_file():
                with contextlib.suppress(FileNotFoundError):  # rotated meanwhile
                    found[path] = path.stat().st_mtime_ns
        return [*sorted(found, key=found.__getitem__), *([self.path] if self.path.exists() else [])]

    # ---- one file

    async def _read(self, opened: int, offset: int) -> None:
        """Store what the file holds and what is appended to it, until another file has taken its name."""
        longest = self.limits.max_record_bytes
        splitter, refused, seen_s = LineSplitter(longest), 0, time.monotonic()
        landed = offset  # behind the last line that was stored
        head = _head(opened, landed)
        while True:
            chunk = await asyncio.to_thread(os.pread, opened, CHUNK_BYTES, offset)
            if chunk:
                seen_s = time.monotonic()
                lines = splitter.feed(chunk)
                if b"\n" in chunk:
                    landed = offset + chunk.rindex(b"\n") + 1
                offset += len(chunk)
                head = _head(opened, landed)
                await self._land(lines, opened, landed)
                if splitter.refused > refused:
                    self.refuse(splitter.refused - refused, f"{self.path} has a line of more than {longest} bytes")
                    refused = splitter.refused
            elif not self._is_replaced(opened):
                seen_s = time.monotonic()
                await asyncio.sleep(self.poll_s)
            elif time.monotonic() - seen_s < self.linger_s:
                await asyncio.sleep(self.poll_s)
            else:
                if splitter.open_bytes:
                    self.refuse(1, f"{self.path} was rotated in the middle of a line")
                return
            if os.fstat(opened).st_size < offset or _head(opened, landed) != head:
                self.report_error(f"{self.path} was truncated: it is read from its start")
                splitter, refused, offset, landed = LineSplitter(longest), 0, 0, 0
                head = _head(opened, 0)

    async def _land(self, lines: list[bytes], opened: int, landed: int) -> None:
        if not lines:
            return
        about = os.fstat(opened)
        place = Place(about.st_dev, about.st_ino, landed, _head(opened, landed), about.st_mtime_ns)
        ticket = await self.store(lines, stream=self.intake.instance)
        ticket.add_done_callback(lambda done: self._save(done, place))

    def _is_replaced(self, opened: int) -> bool:
        """Whether the path is another file now."""
        try:
            about = self.path.stat()
        except FileNotFoundError:
            return False  # it may be on its way
        mine = os.fstat(opened)
        return (about.st_dev, about.st_ino) != (mine.st_dev, mine.st_ino)

    # ---- the place

    def _save(self, done: Ticket, place: Place) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None and not isinstance(error, RecordRefused):
            return  # the next lease reads it again
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
                f"{self.state_path} holds no place: {type(error).__name__}", fix="Delete it to read the file from its start"
            ) from None


def _open(path: Path) -> int | None:
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would wait for its writer
    except FileNotFoundError:
        return None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise SourceUnavailable(f"{path} cannot be opened: {why}", fix="Let the receiver read it") from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise SourceUnavailable(f"{path} is no regular file", fix="Name a file that grows")
    return opened


def _head(opened: int, offset: int) -> str:
    """Of the first bytes, none behind the offset."""
    return hashlib.sha256(os.pread(opened, min(HEAD_BYTES, offset), 0)).hexdigest()
