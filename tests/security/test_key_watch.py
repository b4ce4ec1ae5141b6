"""A list of keys that changes: what is read again, and when."""

from __future__ import annotations

import logging

import pytest

from scaler_cluster.links.curve import AllowList
from scaler_cluster.runtime.key_watch import KeyWatch
from scaler_cluster.security import key_files
from scaler_cluster.security.credentials import Credentials


class List:
    """A file of a scheduler's keys with one client, and whoever watches it."""

    def __init__(self, directory) -> None:
        key_files.make_cluster(directory)
        key_files.add(directory, "client", "alice")
        self.directory = directory
        self.path = directory / "scheduler.key"
        credentials = Credentials.of("scheduler", directory)
        assert credentials.keys is not None
        self.watch = KeyWatch(credentials, AllowList(credentials.keys.users))

    @property
    def lets_alice_in(self) -> bool:
        return "client:alice" in self.watch.allowed.users.values()


@pytest.fixture
def made(tmp_path):
    """A list that is watched."""
    return List(tmp_path / "keys")


def test_a_change_before_the_first_look_is_seen(made) -> None:
    """Whoever was removed while the scheduler started is out."""
    key_files.remove(made.directory, "alice")

    assert made.watch.look() is True
    assert not made.lets_alice_in


def test_what_does_not_change_ends_nothing(made) -> None:
    """A file that was only read again, or written anew, is no news."""
    assert made.watch.look() is None
    made.path.touch()
    assert made.watch.look() is None
    assert made.lets_alice_in


def test_a_new_key_ends_nothing(made) -> None:
    """Nobody is out when somebody is added."""
    key_files.add(made.directory, "client", "bob")

    assert made.watch.look() is False


def test_a_file_that_could_not_be_read_is_tried_again(made, caplog) -> None:
    """Once its mode is mended, it counts; until then one line says what is wrong."""
    key_files.remove(made.directory, "alice")
    made.path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert made.watch.look() is None
        assert made.watch.look() is None
    assert made.lets_alice_in
    assert len(caplog.records) == 1
    made.path.chmod(0o600)

    assert made.watch.look() is True
    assert not made.lets_alice_in
