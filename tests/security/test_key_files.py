"""Files of keys: who they are for, who may read them, what is wrong with one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scaler_cluster.errors import ConfigError
from scaler_cluster.links.curve import is_key, new_key_pair, public_key_of
from scaler_cluster.security import key_files
from scaler_cluster.security.keys import Keys, PublicKey, parse
from scaler_cluster.users import CLIENT, MONITOR, ROLES, SCHEDULER, WORKER


@pytest.fixture
def directory(tmp_path) -> Path:
    """Return the directory of the keys of a cluster."""
    key_files.make_cluster(tmp_path / "keys")
    return tmp_path / "keys"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_cluster_has_one_key_for_each_role(directory) -> None:
    """Each file has one pair and the scheduler's public key; the scheduler knows all of them."""
    keys = {role: key_files.read_keys(directory / f"{role}.key") for role in ROLES}

    assert {keys[role].own.role for role in ROLES} == set(ROLES)
    assert all(one.server(SCHEDULER) == keys[SCHEDULER].own.public for one in keys.values())
    assert keys[SCHEDULER].users == {one.own.public: one.own.user for one in keys.values()}
    assert len({one.pair.secret for one in keys.values()}) == len(ROLES)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_nobody_else_can_read_what_was_made(directory) -> None:
    """The directory and its files are their user's alone, whatever the umask is."""
    before = os.umask(0)
    try:
        key_files.add(directory, CLIENT, "alice")
    finally:
        os.umask(before)

    assert mode(directory) == 0o700
    assert {mode(path) for path in directory.iterdir()} == {0o600}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o602, 0o644, 0o777])
def test_a_file_that_others_can_read_is_refused(directory, bits) -> None:
    """Keys that somebody else may know are no keys."""
    path = directory / "client.key"
    path.chmod(bits)

    with pytest.raises(ConfigError, match=f"other users can read the keys in {path}: chmod 600"):
        key_files.read_keys(path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such owners")
@pytest.mark.parametrize("has_name", [True, False])
def test_keys_of_another_user_say_whose_they_are(directory, monkeypatch, has_name) -> None:
    """Root is refused, too: what root writes there, the scheduler could not read."""
    import pwd

    uid = os.geteuid() or 1
    users = {uid: pwd.struct_passwd(("scaler", "x", uid, uid, "", "/", "/bin/sh"))}
    monkeypatch.setattr(pwd, "getpwuid", (users if has_name else {}).__getitem__)
    path = directory / "scheduler.key"
    os.chown(path, uid, -1)
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)

    with pytest.raises(ConfigError) as caught:
        key_files.add(directory, CLIENT, "alice")

    owner = "scaler" if has_name else f"'#{uid}'"
    assert str(caught.value) == (
        f"the keys in {path} belong to {owner}: run this as that user, by sudo -u {owner} COMMAND"
    )


def test_keys_are_not_overwritten(directory) -> None:
    """A second cluster needs a directory of its own."""
    with pytest.raises(ConfigError, match="has keys already"):
        key_files.make_cluster(directory)


def test_who_was_added_is_known_until_removed(directory) -> None:
    """A key that is added is in the scheduler's list, one that is removed is not."""
    path = key_files.add(directory, MONITOR, "screen")
    screen = key_files.read_keys(path)
    scheduler = key_files.scheduler_file(directory)
    assert key_files.read_keys(scheduler).users[screen.own.public] == "monitor:screen"

    key_files.remove(directory, "screen")

    assert screen.own.public not in key_files.read_keys(scheduler).users
    assert not path.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
def test_all_who_change_a_list_at_once_change_it(directory) -> None:
    """Nobody who was added is missing, and nobody who was removed is back."""
    for number in range(8):
        key_files.add(directory, CLIENT, f"old{number}")
    together = threading.Barrier(16)

    def change(number: int) -> None:
        together.wait()
        if number < 8:
            key_files.add(directory, WORKER, f"new{number}")
        else:
            key_files.remove(directory, f"old{number - 8}")

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(change, range(16)))

    names = {one.name for one in key_files.read_keys(directory / "scheduler.key").known}
    assert names == {*ROLES, *(f"new{number}" for number in range(8))} - {SCHEDULER}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_what_was_written_outlives_a_power_cut(directory, monkeypatch) -> None:
    """The file is on the disk before it takes the place of another one, and then its name is."""
    path = directory / "scheduler.key"
    synced: list[tuple[int, int]] = []

    def fsync(fd: int) -> None:
        synced.append((os.fstat(fd).st_ino, path.stat().st_ino))

    before = path.stat().st_ino
    monkeypatch.setattr(os, "fsync", fsync)

    key_files.remove(directory, "client")

    after = path.stat().st_ino
    assert synced == [(after, before), (directory.stat().st_ino, after)]


@pytest.mark.parametrize(
    ("role", "name", "reason"),
    [
        (SCHEDULER, "second", "one key for the scheduler"),
        (CLIENT, "client", "a key of the name 'client' already"),
        (WORKER, "../up", "the name of a key must consist of"),
        (WORKER, "a b", "the name of a key must consist of"),
        (WORKER, "", "the name of a key must consist of"),
    ],
)
def test_what_cannot_be_added_is_refused(directory, role, name, reason) -> None:
    """Nothing is written then."""
    before = {path: path.read_bytes() for path in directory.iterdir()}

    with pytest.raises(ConfigError, match=reason):
        key_files.add(directory, role, name)

    assert {path: path.read_bytes() for path in directory.iterdir()} == before


def test_only_who_is_there_can_be_removed(directory) -> None:
    """The sentence says how to find the names."""
    with pytest.raises(ConfigError, match="no key of the name 'bob': see scaler_keys list"):
        key_files.remove(directory, "bob")


GOOD = Keys.new(CLIENT, "alice", PublicKey(SCHEDULER, "scheduler", new_key_pair().public))
TEXT = GOOD.file_text()


def test_what_is_written_is_read_again() -> None:
    """A file says all that the keys say."""
    assert parse(f"# of alice\n\n{TEXT}", "f") == [GOOD]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no secret key"),
        (str(GOOD.known[0]), "has no secret key"),
        (f"{TEXT}client", "line 3: a line is: role name public-key"),
        (f"{TEXT}king arthur {GOOD.own.public}", "line 3: a line is: role name public-key"),
        (f"{TEXT}client ../x {new_key_pair().public}", "line 3: this is no name, or no public key"),
        (f"{TEXT}client bob {'#' * 40}", "line 3: this is no name, or no public key"),
        (f"{TEXT}client bob short", "line 3: this is no name, or no public key"),
        (f"{GOOD.own} {new_key_pair().secret}", "line 1: the secret does not belong"),
        (f"{GOOD.own} short", "line 1: the secret does not belong"),
        (f"{TEXT}monitor m {GOOD.own.public}", "has the key of 'alice' twice"),
    ],
    ids="0123456789",
)
def test_a_damaged_file_says_where(text, reason) -> None:
    """The line is named, and nothing of a secret is shown."""
    with pytest.raises(ConfigError, match=reason) as caught:
        parse(text, "f")

    assert GOOD.pair.secret not in str(caught.value)


def test_what_is_shown_has_no_secret() -> None:
    """Neither a traceback with all values shows one, nor a line of a log."""
    assert GOOD.pair.secret not in repr(GOOD)
    assert GOOD.pair.secret not in f"{GOOD}"
    assert GOOD.pair.secret not in repr(GOOD.pair)


def test_what_a_key_is() -> None:
    """A pair fits, and other texts are no keys."""
    pair = new_key_pair()

    assert public_key_of(pair.secret) == pair.public
    assert is_key(pair.public)
    assert not any(map(is_key, ("", "a" * 39, "a" * 41, "~" * 40, "#" * 40, "ä" * 40)))
    with pytest.raises(ValueError, match="not a key"):
        public_key_of("#" * 40)


@pytest.mark.slow
def test_whoever_writes_no_keys_imports_nothing_for_it() -> None:
    """Every client and worker imports this package: it costs each of them time and memory."""
    program = (
        "import sys, scaler_exec; print(*{'tempfile', 'shutil', 'bz2', 'lzma'} & {*sys.modules})"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "\n"


# -- loopback addresses ----------------------------------------------------------------------------


def test_both_ends_have_the_same_loopback_keys(tmp_path, monkeypatch) -> None:
    """Whoever comes first makes them; what is there stays."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    listening, connecting = key_files.loopback_keys()

    assert key_files.loopback_keys() == (listening, connecting)
    assert connecting.server(SCHEDULER) == listening.own.public
    assert connecting.own.public in listening.users
    assert mode(tmp_path / "scaler" / "loopback.key") == 0o600
    assert mode(tmp_path / "scaler") == 0o700


def test_a_damaged_file_of_loopback_keys_says_what_to_do(tmp_path, monkeypatch) -> None:
    """It is never replaced silently: other processes have what was in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    key_files.loopback_keys()
    path = tmp_path / "scaler" / "loopback.key"
    path.write_text(Keys.new(CLIENT, "x").file_text())

    with pytest.raises(ConfigError, match="is damaged: remove it"):
        key_files.loopback_keys()
