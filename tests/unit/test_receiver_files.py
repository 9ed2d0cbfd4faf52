"""Laws of a file that is rotated, packed and truncated while nobody reads it, or while the broker is away."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.receivers import MemorySender, Running, a_lease, served, texts, until
from tidegate_receivers.runtime.sources import FileSource

LINES = 40


class Written:
    """A log that a program writes and rotation renames and packs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.log"
        self.state = folder / "place.json"
        self.lines: list[bytes] = []
        self.at_s = 4_000_000_000  # later than what the receiver may see before it is set

    def write(self, count: int = LINES) -> None:
        more = [b"line %06d of the log" % n for n in range(len(self.lines), len(self.lines) + count)]
        with self.path.open("ab") as file:
            file.writelines(line + b"\n" for line in more)
        self.lines += more
        self.at_s += 10
        os.utime(self.path, (self.at_s, self.at_s))

    def rotate(self, *packer: str, delayed: bool = False) -> None:
        """As logrotate with `compress`, or `delaycompress`, does."""
        folder, name = self.path.parent, self.path.name
        for number in (5, 4, 3, 2, 1):
            for path in folder.glob(f"{name}.{number}*"):
                path.rename(folder / path.name.replace(f".{number}", f".{number + 1}", 1))
        self.path.rename(folder / f"{name}.1")
        packed = folder / f"{name}.{2 if delayed else 1}"
        if packer and packed.exists():
            subprocess.run([*packer, packed.name], cwd=folder, check=True)
        self.path.touch()
        os.utime(self.path, (self.at_s, self.at_s))

    def source(self) -> FileSource:
        return FileSource(path=self.path, state_path=self.state, poll_s=0.005, linger_s=0.02)


@pytest.fixture
def log(tmp_path: Path) -> Written:
    return Written(tmp_path)


async def read(log: Written, sender: MemorySender, records: int) -> Running:
    async with served(log.source(), sender=sender) as one:
        await until(lambda: len(sender.log) >= records or one.source.intake.counts.refused)
        await one.ended()
    return one


@pytest.mark.parametrize(
    ("packer", "rotations", "delayed"),
    [*((packer, 2, False) for packer in ("gzip", "bzip2", "xz")), *(("gzip", rotations, True) for rotations in (1, 2, 3))],
)
async def test_lines_that_were_packed_unread_are_landed(log: Written, packer: str, rotations: int, *, delayed: bool) -> None:
    """By `compress` of logrotate, and by its `delaycompress`."""
    sender = MemorySender()
    log.write()
    await read(log, sender, LINES)
    for _ in range(rotations):
        log.write()
        log.rotate(packer, delayed=delayed)
    log.write()
    one = await read(log, sender, len(log.lines))
    assert texts(sender) == log.lines
    assert (await one.ended()).last_error is None


async def test_lines_of_a_first_lease_that_nothing_acknowledged_are_landed_by_the_next(log: Written) -> None:
    """The file was rotated and packed before the broker had acknowledged anything; older files were there before."""
    log.write()
    log.rotate("gzip")
    log.lines = []
    log.write()
    away = MemorySender(away=True)
    async with served(log.source(), sender=away, lease=a_lease(drain=0.05)) as one:
        await until(lambda: one.source._intake is not None and one.source.intake.fill)
        log.rotate("gzip")
        log.write()
        log.rotate("gzip")
        log.write()
    sender = MemorySender()
    await read(log, sender, len(log.lines))
    assert texts(sender) == log.lines


async def test_a_file_that_is_packed_while_it_is_followed_is_not_read_twice(log: Written) -> None:
    """Rotation packs it at once, and takes its inode away: its copy is known by its content."""
    sender = MemorySender()
    async with served(log.source(), sender=sender):
        for _ in range(3):
            log.write()
            await until(lambda: len(sender.log) == len(log.lines))
            log.rotate("gzip")
    log.write()
    await read(log, sender, len(log.lines))
    assert texts(sender) == log.lines


async def test_the_copy_that_copytruncate_leaves_is_read_to_its_end(log: Written) -> None:
    """So lines that waited for the broker when the file was truncated are not lost."""
    sender = MemorySender()
    log.write()
    await read(log, sender, LINES)
    log.write()
    copy = log.path.with_name("app.log.1")
    copy.write_bytes(log.path.read_bytes())
    os.truncate(log.path, 0)
    log.write(2 * LINES)
    os.utime(copy, (log.at_s - 5, log.at_s - 5))
    await read(log, sender, len(log.lines))
    assert texts(sender) == log.lines


@pytest.mark.parametrize("spoil", [lambda path: path.rename(f"{path}.zst"), lambda path: Path(f"{path}.gz").write_bytes(b"no")])
async def test_an_unreadable_packed_file_stops_the_receiver_and_is_named(log: Written, spoil: Callable[[Path], object]) -> None:
    sender = MemorySender()
    log.write()
    await read(log, sender, LINES)
    log.write()
    log.rotate()
    log.write()
    rotated = log.path.with_name("app.log.1")
    content = rotated.read_bytes()
    spoil(rotated)
    rotated.unlink(missing_ok=True)
    for packed in log.path.parent.glob("app.log.1.*"):
        os.utime(packed, (log.at_s - 5, log.at_s - 5))
    async with served(log.source(), sender=sender) as one:
        said = await one.until_told("cannot be read")
        assert "app.log.1." in said
        assert "Unpack it as app.log.1" in said
        assert texts(sender) == log.lines[:LINES]
        rotated.write_bytes(content)
        os.utime(rotated, (log.at_s - 5, log.at_s - 5))
        await until(lambda: len(sender.log) == len(log.lines))
    assert texts(sender) == log.lines


async def test_a_file_that_was_read_to_its_end_may_be_packed_by_anything(log: Written) -> None:
    """What nothing here unpacks is known by its time while it is followed."""
    sender = MemorySender()
    async with served(log.source(), sender=sender) as one:
        log.write()
        await until(lambda: len(sender.log) == LINES)
        log.rotate("zstd", "-q", "--rm")
        log.write()
        await until(lambda: len(sender.log) == len(log.lines))
        assert (await one.ended()).last_error is None
    assert texts(sender) == log.lines


async def test_what_follows_a_file_that_is_gone_is_read_and_nothing_before_it(log: Written) -> None:
    """Rotated twice and deleted while nobody read, its first successor is still there."""
    sender = MemorySender()
    for _ in range(2):
        log.write()
        await read(log, sender, len(log.lines))
        log.rotate()
    log.write()
    log.rotate()
    log.write()
    log.path.with_name("app.log.2").unlink()
    await read(log, sender, len(log.lines))
    assert texts(sender) == log.lines


async def test_a_file_that_comes_and_is_rotated_after_the_first_look_is_landed(log: Written) -> None:
    async with served(log.source(), sender=MemorySender()):
        await until(log.state.exists)
    log.write()
    log.rotate("gzip")
    log.write()
    sender = MemorySender()
    await read(log, sender, len(log.lines))
    assert texts(sender) == log.lines


@pytest.mark.parametrize("packed", [True, False])
async def test_files_without_lines_between_others_hide_none(log: Written, *, packed: bool) -> None:
    """An empty file is rotated, and packed or removed, while the receiver follows it."""
    sender = MemorySender()
    async with served(log.source(), sender=sender) as one:
        await until(log.state.exists)  # there is no file yet
        for _ in range(3):
            log.write(0)
            log.rotate("gzip") if packed else log.path.unlink()
            log.write()
            await until(lambda: len(sender.log) == len(log.lines))
            log.rotate("gzip")
        assert (await one.ended()).last_error is None
    assert texts(sender) == log.lines
