"""Files of keys: nobody but their user can read them."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError
from scaler_cluster.security.keys import Keys, check_name, new_cluster, parse
from scaler_cluster.users import MANY, OPERATOR, OWNER, SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Iterator

BYTES_MAX = 4 << 20
"""More than 30,000 keys; a longer file is none of ours."""
SUFFIX = ".key"
LOOPBACK = "loopback.key"
"""The keys of a user for loopback addresses: the scheduler's pair, then the owner's."""
LOOPBACK_OPERATOR = "loopback-operator.key"
"""The key of a user who acts on the tasks of loopback clusters: there is none unless it is asked
for, so no program does that by mistake."""


def read_private(path: Path) -> bytes:
    """Return what is in a file; raises ConfigError, also if other users can read it."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0))
    except OSError as error:
        raise ConfigError(f"cannot read the keys in {path}: {error.strerror}") from None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"the keys in {path} cannot be read: it is not a file")
        if sys.platform != "win32":
            if status.st_mode & 0o077:
                raise ConfigError(
                    f"other users can read the keys in {path}: chmod 600 {path}, and make new keys "
                    "if they may have read it"
                )
            if status.st_uid not in (os.geteuid(), 0):
                owner = _name_of(status.st_uid)
                raise ConfigError(
                    f"the keys in {path} belong to {owner}: run this as that user, by "
                    f"sudo -u {owner} COMMAND"
                )
        return file.read(BYTES_MAX + 1)


def read_text(path: Path) -> str:
    """Return what is in a file of scaler_keys; raises ConfigError as :func:`read_private` does."""
    try:
        return read_private(path).decode("ascii")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a file of scaler_keys") from None


def _name_of(uid: int) -> str:
    """Return the name of a user; a user without one is written as sudo takes it."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"'#{uid}'"


def write_text(path: Path, text: str, *, anew: bool = False) -> None:
    """Write a file that nobody else can read, as a whole; raises ConfigError.

    After a power cut, what was there before is there, or all of this. Raises FileExistsError if the
    file is there and is to be made ``anew``.
    """
    import tempfile  # brings much along, for what most processes never do

    try:
        fd, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(fd)
            if anew and sys.platform != "win32":
                os.link(draft, path)
            elif anew:
                Path(draft).rename(path)
            else:
                Path(draft).replace(path)
        finally:
            Path(draft).unlink(missing_ok=True)
        _keep_names(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _keep_names(directory: Path) -> None:
    """Have the names in a directory written to the disk, where a file system can do that."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def read_keys(path: Path) -> Keys:
    """Return the keys in a file; raises ConfigError."""
    found = parse(read_text(path), str(path))
    if len(found) > 1:
        raise ConfigError(f"{path} has several secret keys: it is not a file of scaler_keys")
    return found[0]


# -- the directory of a cluster's keys -----------------------------------------------------------


def make_cluster(directory: Path) -> list[Path]:
    """Make a directory with the keys of a new cluster; return its files.

    Raises ConfigError if keys are there already, or if they cannot be written.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {directory}: {error.strerror}") from None
    if any(directory.glob(f"*{SUFFIX}")):
        raise ConfigError(f"{directory} has keys already: choose another directory")
    files = []
    for role, keys in new_cluster().items():
        files.append(directory / f"{role}{SUFFIX}")
        write_text(files[-1], keys.file_text(), anew=True)
    return files


def scheduler_file(directory: Path) -> Path:
    """Return the file that says who is let in."""
    return directory / f"{SCHEDULER}{SUFFIX}"


def add(directory: Path, role: str, name: str) -> Path:
    """Make a key for one more user, and let it in; return its file. Raises ConfigError."""
    path = directory / f"{name}{SUFFIX}"
    with _changing(scheduler_file(directory)) as scheduler:
        if role not in MANY:
            raise ConfigError(f"a cluster has one key for the {role}: add one of {', '.join(MANY)}")
        if any(one.name == check_name(name) for one in (scheduler.own, *scheduler.known)):
            raise ConfigError(f"there is a key of the name {name!r} already")
        keys = Keys.new(role, name, scheduler.own)
        try:
            write_text(path, keys.file_text(), anew=True)
        except FileExistsError:
            raise ConfigError(f"{path} is there already") from None
        write_text(scheduler_file(directory), scheduler.knowing(keys.own).file_text())
    return path


def remove(directory: Path, name: str) -> None:
    """Let a user in no more, and delete its file if it is here. Raises ConfigError."""
    with _changing(scheduler_file(directory)) as scheduler:
        if all(one.name != name for one in scheduler.known):
            raise ConfigError(f"there is no key of the name {name!r}: see scaler_keys list")
        write_text(scheduler_file(directory), scheduler.without(name).file_text())
        (directory / f"{name}{SUFFIX}").unlink(missing_ok=True)


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[Keys]:
    """Return the keys in a file, which nobody else changes meanwhile; raises ConfigError."""
    keys = read_keys(path)
    if sys.platform == "win32":
        yield keys
        return
    try:
        fd = _locked(path)
    except OSError as error:
        raise ConfigError(f"cannot change {path}: {error.strerror}") from None
    try:
        yield read_keys(path)
    finally:
        os.close(fd)


def _locked(path: Path) -> int:
    """Return a descriptor of a file that has its lock, until it is closed."""
    import fcntl

    while True:
        # Some networks' file systems lock only what is open for writing.
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            # Whoever had the lock before may have put another file in its place.
            if os.path.samestat(os.fstat(fd), path.stat()):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


# -- the keys of a user for this machine -----------------------------------------------------------


def loopback_keys() -> tuple[Keys, Keys]:
    """Return the keys of this user for loopback addresses: of who listens, and of who connects.

    They are made when they are first needed, by whoever comes first. Raises ConfigError.
    """
    path = _loopback_file()
    try:
        text = read_text(path) if path.exists() else ""
        if not text:
            scheduler = Keys.new(SCHEDULER, "loopback")
            owner = Keys.new(OWNER, "loopback")
            lines = (f"{one.own} {one.pair.secret}\n" for one in (scheduler, owner))
            with contextlib.suppress(FileExistsError):
                write_text(path, "".join(lines), anew=True)
            text = read_text(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    found = {one.own.role: one for one in parse(text, str(path))}
    if found.keys() != {SCHEDULER, OWNER}:
        raise ConfigError(f"{path} is damaged: remove it, and it is made anew")
    scheduler, owner = found[SCHEDULER], found[OWNER]
    operators = path.with_name(LOOPBACK_OPERATOR)
    known = [owner.own, *([read_keys(operators).own] if operators.exists() else [])]
    return scheduler.knowing(*known), owner.knowing(scheduler.own)


def loopback_operator() -> Keys:
    """Return the key of this user's operator at loopback addresses; raises ConfigError."""
    path = _loopback_file().with_name(LOOPBACK_OPERATOR)
    if not path.exists():
        raise ConfigError(
            "this user has no key to operate clusters at loopback addresses: make one with "
            "scaler_keys loopback-operator; schedulers that start after that know it"
        )
    return read_keys(path)


def make_loopback_operator() -> Path:
    """Make the key of this user's operator at loopback addresses; return its file.

    Raises ConfigError, also if it is there already.
    """
    scheduler, _ = loopback_keys()
    path = _loopback_file().with_name(LOOPBACK_OPERATOR)
    keys = Keys.new(OPERATOR, "loopback", scheduler.own)
    try:
        write_text(path, keys.file_text(), anew=True)
    except FileExistsError:
        raise ConfigError(f"{path} is there already") from None
    return path


def _loopback_file() -> Path:
    """Return where they lie: in the user's state, or in /tmp for a user without a home."""
    with contextlib.suppress(RuntimeError, OSError):
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        directory = Path(state) / "scaler"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (directory / LOOPBACK).exists() or os.access(directory, os.W_OK):
            return directory / LOOPBACK
    if sys.platform == "win32":
        import tempfile

        shared, user = tempfile.gettempdir(), os.environ.get("USERNAME", "")
    else:
        # Not the one that TMPDIR names: all programs of this user are to find it.
        shared, user = "/tmp", str(os.getuid())  # noqa: S108
    directory = Path(shared) / f"scaler-{user}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
    except OSError as error:
        raise ConfigError(f"cannot make {directory}: {error.strerror}") from None
    is_ours = stat.S_ISDIR(status.st_mode)
    if sys.platform != "win32":
        is_ours = is_ours and status.st_uid == os.geteuid() and not status.st_mode & 0o077
    if not is_ours:
        raise ConfigError(f"{directory} is not this user's alone: set XDG_STATE_HOME")
    return directory / LOOPBACK
