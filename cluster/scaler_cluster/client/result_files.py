"""Bytes under names in a directory: whole or not there, bounded, for several processes at once."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from scaler_cluster.errors import ConfigError
from scaler_cluster.objects.digest import LASTING_BYTES, lasting_digest_of

HEAD = b"scaler result 1\n"
SUFFIX = ".result"
LOOKS = 16
"""A directory is counted anew after so large a part of the limit was written: other processes write
as well."""
FULL = 0.9
"""So much of the limit is left once files were removed."""
STALE_S = 3600.0
"""A file that was being written so long before the last use of another was left by a process that
died."""
JOURNAL_BYTES_MAX = 4 << 20
"""A journal of one function: some 10,000 lines."""


class ResultFiles:
    """Files in a directory of the user's own.

    A file is written beside its place and renamed, so it is there as a whole or not at all, also
    if the process is killed. It is not flushed to the disk: after a power cut a file may be
    damaged, which its digest shows. Raises ConfigError if others may write to the directory: what
    lies there is unpickled.
    """

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory = directory
        self._limit_bytes = limit_bytes
        self._room = 0
        """Bytes that may be written before the directory is counted."""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            stat = directory.stat()
        except OSError as error:
            raise ConfigError(f"cache cannot be kept in {directory}: {error}") from error
        if hasattr(os, "geteuid") and (stat.st_uid != os.geteuid() or stat.st_mode & 0o022):
            raise ConfigError(
                f"cache cannot be kept in {directory}, where other users may write: what lies "
                "there is unpickled; use a directory of your own, with mode 700"
            )

    def _path(self, name: str) -> Path:
        return self.directory / name[:2] / (name + SUFFIX)

    def read(self, name: str) -> bytes | None:
        """Return what was written under a name; a damaged file is removed, as if never written."""
        path = self._path(name)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        start = len(HEAD) + LASTING_BYTES
        content = data[start:]
        if data[:start] != HEAD + lasting_digest_of(content):
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):
            # The time of its last use.
            os.utime(path)
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a file, and remove those that were not used for longest if there is no room.

        What is larger than the limit itself is not written. Raises OSError.
        """
        size = len(content) + len(HEAD) + LASTING_BYTES
        if size > self._limit_bytes:
            return
        self._room -= size
        if self._room < 0:
            self._make_room(size)
        path = self._path(name)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _write(path, HEAD + lasting_digest_of(content) + content)

    def note(self, function: str, line: str) -> None:
        """Add a line to the journal of a function; raises OSError."""
        path = self.directory / f"{function}.journal"
        with path.open("ab") as file:
            # One write: lines of several processes do not mix.
            file.write(line.encode() + b"\n")
            size = file.tell()
        if size > JOURNAL_BYTES_MAX:
            _, _, kept = path.read_bytes()[-JOURNAL_BYTES_MAX // 2 :].partition(b"\n")
            _write(path, kept)

    def notes(self, function: str) -> list[str]:
        """Return the lines of a journal, the oldest first."""
        try:
            data = (self.directory / f"{function}.journal").read_bytes()
        except OSError:
            return []
        return data.decode(errors="replace").splitlines()

    def clear(self) -> None:
        """Remove everything that was written."""
        for path in self.directory.glob(f"*/*{SUFFIX}"):
            path.unlink(missing_ok=True)
        for path in self.directory.glob("*.journal"):
            path.unlink(missing_ok=True)
        self._room = 0

    def _make_room(self, size: int) -> None:
        found, total = [], size
        for path in self.directory.glob("*/*"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        found.sort()
        for used, nbytes, path in found:
            if path.suffix == SUFFIX:
                total += nbytes
            elif found[-1][0] - used > STALE_S:
                path.unlink(missing_ok=True)
        if total > self._limit_bytes:
            for _, nbytes, path in found:
                if total <= FULL * self._limit_bytes:
                    break
                if path.suffix == SUFFIX:
                    path.unlink(missing_ok=True)
                    total -= nbytes
        self._room = min(self._limit_bytes - total, self._limit_bytes // LOOKS)


def _write(path: Path, data: bytes) -> None:
    """Write a file beside its place and put it there."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, path)  # noqa: PTH105 - the name is a text
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
