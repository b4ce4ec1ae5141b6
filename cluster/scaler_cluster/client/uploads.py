"""Files and directories of modules, to archives that workers put on their ``sys.path``."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from scaler_cluster.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ARCHIVES = (".zip", ".whl", ".egg")
NATIVE = (".so", ".pyd", ".dylib", ".dll")
UPLOAD_BYTES_MAX = 1 << 30
"""More would fill the disks of all machines: what is so large belongs to a shared file system."""
UPLOAD_FILES_MAX = 20_000
LEFT_OUT = ("__pycache__", "node_modules", "venv", "site-packages")
"""Directories that are no part of a source tree, beside all whose names begin with a dot."""
BROKEN = (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, ValueError)
"""What reading an archive may raise that is damaged, encrypted or of an unknown kind."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The same files make the same archive, whenever they were written."""


class Upload(NamedTuple):
    """What a worker unpacks into a directory of its ``sys.path``."""

    name: str
    """Another upload of this name takes its place."""
    modules: tuple[str, ...]
    """What can be imported from it."""
    archive: bytes


def read_file(path: Path) -> Upload:
    """Return a module, or what an archive holds.

    Raises ConfigError if it is neither, too large, holds native code, or paths that lead out of it;
    OSError if it cannot be read.
    """
    if path.suffix == ".py":
        _check_regular(path)
        if not path.stem.isidentifier():
            raise ConfigError(f"{path} cannot be imported: {path.stem!r} is no name of a module")
        return Upload(path.name, _modules_of([path.name]), _packed([(path, path.name)], path))
    if path.suffix not in ARCHIVES:
        raise ConfigError(
            f"{path} is no .py, .zip, .whl or .egg file; upload_directory() takes a directory"
        )
    if path.suffix == ".whl" and not path.stem.endswith("-none-any"):
        raise ConfigError(
            f"{path} is a wheel for some systems only: have each worker install it (PipInstall)"
        )
    _check_regular(path)
    _check_size(path.stat().st_size, 1, path)
    archive = path.read_bytes()
    return Upload(path.name, _check_archive(archive, path), archive)


def read_directory(path: Path) -> Upload:
    """Return a package (a directory with an ``__init__.py``), or what stands in a directory.

    Raises as :func:`read_file`.
    """
    path = path.resolve()
    if not path.is_dir():
        raise ConfigError(f"{path} is no directory; upload_file() takes a file")
    base = path.parent if (path / "__init__.py").is_file() else path
    files = [(file, file.relative_to(base).as_posix()) for file in _files_of(path)]
    modules = _modules_of(name for _, name in files)
    if not modules:
        raise ConfigError(f"{path} holds nothing that can be imported: no .py file, no package")
    return Upload(path.name, modules, _packed(files, path))


def _check_regular(path: Path) -> None:
    if not path.is_file():
        # Says of one that does not exist what is wrong.
        path.stat()
        raise ConfigError(f"{path} is no regular file")


def _files_of(path: Path) -> Iterator[Path]:
    """Yield the files of a tree, but no pipes, sockets and links that lead nowhere."""
    for directory, inside, files in os.walk(path):
        inside[:] = sorted(one for one in inside if one not in LEFT_OUT and one[:1] != ".")
        for file in (Path(directory, one) for one in sorted(files)):
            if file.suffix != ".pyc" and file.is_file():
                yield file


def _packed(files: Iterable[tuple[Path, str]], path: Path) -> bytes:
    stream = io.BytesIO()
    nbytes = count = 0
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, name in files:
            nbytes, count = nbytes + file.stat().st_size, count + 1
            _check_size(nbytes, count, path)
            _check_name(name, path)
            content = file.read_bytes()
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _check_archive(content: bytes, path: Path) -> tuple[str, ...]:
    """Return the modules of an archive; raises ConfigError."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            damaged = archive.testzip() if _sum_fits(entries, path) else None
    except ConfigError:
        raise
    except BROKEN as error:
        raise ConfigError(f"{path} is no archive that can be read: {error}") from None
    if damaged is not None:
        raise ConfigError(f"{path} is damaged: {damaged} in it cannot be read")
    for entry in entries:
        _check_name(entry.filename, path)
    modules = _modules_of(entry.filename for entry in entries)
    if not modules:
        raise ConfigError(f"{path} holds nothing that can be imported: no .py file, no package")
    return modules


def _sum_fits(entries: list[zipfile.ZipInfo], path: Path) -> bool:
    _check_size(sum(entry.file_size for entry in entries), len(entries), path)
    return True


def _check_size(nbytes: int, count: int, path: Path) -> None:
    if nbytes > UPLOAD_BYTES_MAX or count > UPLOAD_FILES_MAX:
        raise ConfigError(
            f"{path} is too large to be sent to workers: it may unpack to {UPLOAD_BYTES_MAX} bytes "
            f"and {UPLOAD_FILES_MAX} files; install it there, or on a shared file system"
        )


def _check_name(name: str, path: Path) -> None:
    parts = PurePosixPath(name).parts
    if name.startswith("/") or "\\" in name or ":" in name or ".." in parts:
        raise ConfigError(f"{path} holds {name!r}, a path that may lead out of its directory")
    if name.endswith(NATIVE):
        raise ConfigError(
            f"{path} holds native code ({name}), which is built for one system: have each worker "
            "install it (PipInstall)"
        )


def _modules_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return what can be imported first of these files: modules, and packages of any kind."""
    found: dict[str, None] = {}
    for name in names:
        first, *others = PurePosixPath(name).parts or ("",)
        if name.endswith(".py"):
            top = first if others else first.removesuffix(".py")
            if top == "__main__":
                raise ConfigError(
                    f"{name} cannot be imported by tasks: __main__ is the program itself; give it "
                    "another name"
                )
            if top.isidentifier():
                found[top] = None
    return tuple(sorted(found))
