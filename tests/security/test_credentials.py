"""Which keys a process needs at which address."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaler_cluster import arguments
from scaler_cluster.errors import ConfigError
from scaler_cluster.links.curve import AllowList
from scaler_cluster.security import key_files
from scaler_cluster.security.credentials import (
    FEED_DOOR,
    STORAGE_DOOR,
    TASKS_DOOR,
    Credentials,
    is_loopback,
)
from scaler_cluster.users import CLIENT, MONITOR, SCHEDULER, STORAGE, WORKER

FAR, NEAR = "tcp://192.0.2.7:8516", "tcp://127.0.0.1:8516"


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """Return the directory of the keys of a cluster; the environment names no other."""
    monkeypatch.delenv("SCALER_KEYS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    key_files.make_cluster(tmp_path / "keys")
    return tmp_path / "keys"


@pytest.mark.parametrize(
    ("address", "is_near"),
    [
        (NEAR, True), ("tcp://127.8.8.8:1", True), ("tcp://[::1]:1", True),
        ("tcp://localhost:1", True), (FAR, False), ("tcp://0.0.0.0:1", False),
        ("tcp://[::]:1", False), ("tcp://no-such-host.invalid:1", False),
    ],
)  # fmt: skip
def test_what_is_near(address, is_near) -> None:
    """An address is a loopback address if no other machine reaches it."""
    assert is_loopback(address) == is_near


@pytest.mark.parametrize("door", [TASKS_DOOR, FEED_DOOR, STORAGE_DOOR])
def test_nobody_listens_in_the_open_by_mistake(directory, door) -> None:
    """An address that others reach needs keys, or the word for doing without."""
    with pytest.raises(ConfigError, match="so it needs keys .whoever reaches it could run"):
        Credentials.of(SCHEDULER).guard(FAR, door, AllowList({}))

    assert Credentials.of(SCHEDULER, "insecure").guard(FAR, door, AllowList({})) is None


def test_nobody_connects_in_the_open_by_mistake(directory) -> None:
    """Who connects without keys might be answered by anybody."""
    with pytest.raises(ConfigError, match="is not a loopback address, so it needs keys"):
        Credentials.of(CLIENT).passport(FAR)

    assert Credentials.of(CLIENT, "insecure").passport(FAR) is None


def test_a_private_path_needs_no_keys(directory) -> None:
    """Files have modes."""
    assert Credentials.of(CLIENT).passport("ipc:///tmp/x") is None
    assert Credentials.of(SCHEDULER).guard("ipc:///tmp/x", TASKS_DOOR, AllowList({})) is None


def test_a_user_reaches_what_listens_at_a_loopback_address(directory) -> None:
    """Nothing needs to be said: both ends find the keys of their user."""
    allowed = AllowList({})
    guard = Credentials.of(SCHEDULER).guard(NEAR, TASKS_DOOR, allowed)
    passport = Credentials.of(CLIENT).passport(NEAR)

    assert guard is not None
    assert passport is not None
    assert passport.server == guard.pair.public
    assert guard.admits(passport.pair.public)
    assert allowed.users[passport.pair.public] == "owner:loopback"


@pytest.mark.parametrize(
    ("door", "let_in"),
    [
        (TASKS_DOOR, {SCHEDULER, WORKER, CLIENT}),
        (FEED_DOOR, {MONITOR, CLIENT}),
        (STORAGE_DOOR, {SCHEDULER, STORAGE, WORKER, CLIENT}),
    ],
)
def test_a_role_comes_in_where_it_has_something_to_do(directory, door, let_in) -> None:
    """A monitor looks, and submits nothing; a worker does not read what others do."""
    allowed = AllowList({})
    guard = Credentials.of(SCHEDULER, directory).guard(FAR, door, allowed)
    assert guard is not None
    found = set()
    for role in (SCHEDULER, STORAGE, WORKER, CLIENT, MONITOR):
        passport = Credentials.of(role, directory).passport(FAR)
        assert passport is not None
        if guard.admits(passport.pair.public):
            found.add(role)

    assert found == let_in


def test_who_is_removed_is_admitted_no_more(directory) -> None:
    """The list may change while sockets listen."""
    allowed = AllowList({})
    guard = Credentials.of(SCHEDULER, directory).guard(FAR, TASKS_DOOR, allowed)
    passport = Credentials.of(CLIENT, directory).passport(FAR)
    assert guard is not None
    assert passport is not None

    others = {key: user for key, user in allowed.users.items() if "client" not in user}

    assert allowed.replace(others)
    assert not allowed.replace(others)
    assert not guard.admits(passport.pair.public)


def test_the_environment_counts_off_loopback(directory, monkeypatch) -> None:
    """SCALER_KEYS names a file, a directory, or says insecure; SCALER_KEY holds the keys."""
    own = key_files.read_keys(directory / "client.key").pair
    for path in (directory, directory / "client.key"):
        monkeypatch.setenv("SCALER_KEYS", str(path))
        passport = Credentials.of(CLIENT).passport(FAR)
        assert passport is not None
        assert passport.pair == own
    near = Credentials.of(CLIENT).passport(NEAR)
    assert near is not None
    assert near.pair != own
    monkeypatch.setenv("SCALER_KEYS", "insecure")
    assert Credentials.of(CLIENT).passport(FAR) is None
    assert Credentials.of(SCHEDULER).guard(FAR, TASKS_DOOR, AllowList({})) is None
    monkeypatch.delenv("SCALER_KEYS")
    monkeypatch.setenv("SCALER_KEY", (directory / "client.key").read_text())
    passport = Credentials.of(CLIENT).passport(FAR)
    assert passport is not None
    assert passport.pair == own


def test_what_is_given_counts_everywhere(directory) -> None:
    """Whoever names keys means them, also for an address that a tunnel leads away from."""
    passport = Credentials.of(CLIENT, directory).passport(NEAR)

    assert passport is not None
    assert passport.pair == key_files.read_keys(directory / "client.key").pair


def test_keys_of_another_role_are_refused(directory) -> None:
    """The sentence says whose they are, and whose are needed."""
    path = directory / "worker.key"
    with pytest.raises(
        ConfigError, match=f"{path} has the keys of a worker; this needs those of a c"
    ):
        Credentials.of(CLIENT, path)


def test_a_child_without_a_file_is_let_in(directory) -> None:
    """A cluster in a program makes keys for its own workers, which a changed file does not end."""
    scheduler, workers = Credentials.of(SCHEDULER, directory).for_child(WORKER)
    passport = workers.passport(FAR)
    assert passport is not None
    allowed = AllowList({})
    guard = scheduler.guard(FAR, TASKS_DOOR, allowed)
    assert guard is not None

    assert guard.admits(passport.pair.public)
    assert allowed.users[passport.pair.public] == "worker:embedded"
    again = scheduler.reread()
    assert again.keys is not None
    assert again.keys.users == allowed.users


def test_a_storage_tells_its_key(directory) -> None:
    """Whoever is told of a storage knows whom to expect there."""
    worker = Credentials.of(WORKER, directory)
    assert worker.keys is not None

    address = worker.addressed(FAR)

    assert address == f"{FAR}#{worker.keys.own.public}"
    passport = Credentials.of(CLIENT, directory).passport(address)
    assert passport is not None
    assert passport.server == worker.keys.own.public
    assert Credentials.of(SCHEDULER, directory).addressed(FAR) == FAR
    assert Credentials.of(WORKER).addressed(NEAR) == NEAR


def test_a_scheduler_tells_the_key_of_the_storage(directory, monkeypatch) -> None:
    """It is told with the address that others know; where all have the same keys, it is not."""
    given = Credentials.of(SCHEDULER, directory)
    storage = key_files.read_keys(directory / "storage.key").own.public

    assert given.addressed(FAR, "tcp://me:1", STORAGE) == f"tcp://me:1#{storage}"
    assert Credentials.of(SCHEDULER).addressed(NEAR, "tcp://me:1", STORAGE) == "tcp://me:1"
    assert given.addressed("ipc:///tmp/x", "ipc:///tmp/y", STORAGE) == "ipc:///tmp/y"
    passport = given.passport(FAR, STORAGE)
    assert passport is not None
    assert passport.server == storage
    near = Credentials.of(SCHEDULER).passport(NEAR, STORAGE)
    assert near is not None
    assert near.server == key_files.loopback_keys()[0].own.public
    key_files.remove(directory, "storage")
    with pytest.raises(ConfigError, match="scheduler:scheduler do not know the key of the storage"):
        Credentials.of(SCHEDULER, directory).passport(FAR, STORAGE)
    monkeypatch.setenv("SCALER_KEYS", str(directory))
    assert Credentials.of(SCHEDULER).resolved(FAR) == Credentials.of(SCHEDULER, directory)
    assert Credentials.of(SCHEDULER).resolved(NEAR) == Credentials.of(SCHEDULER)


def test_going_without_by_the_environment_counts_off_loopback_only(directory, monkeypatch) -> None:
    """A scheduler that goes without where others reach it still guards its loopback addresses."""
    monkeypatch.setenv("SCALER_KEYS", "insecure")

    credentials = Credentials.of(SCHEDULER).resolved(FAR)

    assert credentials.guard(FAR, TASKS_DOOR, AllowList({})) is None
    assert credentials.guard(NEAR, FEED_DOOR, AllowList({})) is not None


def test_a_path_that_a_program_gives_holds_in_every_directory(directory, monkeypatch) -> None:
    """A client takes it along when it is pickled, wherever it is unpickled."""
    monkeypatch.chdir(directory.parent)
    monkeypatch.setenv("HOME", str(directory.parent))

    for given in ("keys", "./keys", Path("keys"), "~/keys"):
        assert arguments.keys_path(given) == str(directory), given
    assert arguments.keys_path("insecure") == "insecure"


def test_what_a_program_may_give(directory) -> None:
    """A path, by one of two names; no configuration of TLS."""
    assert arguments.keys_path(directory) == str(directory)
    assert arguments.keys_path(None, directory) == str(directory)
    assert arguments.keys_path(None) is None
    with pytest.raises(ConfigError, match="there is no TLS between processes"):
        arguments.keys_path(None, object())
    with pytest.raises(ConfigError, match="give only one"):
        arguments.keys_path(directory, directory)
    with pytest.raises(TypeError, match="keys must be a path"):
        arguments.keys_path(7)  # type: ignore[arg-type]
