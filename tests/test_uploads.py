"""What of a user's files is sent to workers, and what is refused before anything is sent."""

from __future__ import annotations

import errno
import os
import zipfile
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from scaler_cluster.client import uploads
from scaler_cluster.client.function_pickler import FunctionPickler
from scaler_cluster.client.present_workers import Outcome, WorkerInfo
from scaler_cluster.client.session_code import SessionCode
from scaler_cluster.errors import CodeError, ConfigError
from scaler_cluster.objects.sent import identify
from scaler_cluster.objects.unchanging import may_not_change, unchanging
from scaler_cluster.pickling.code_bundle import Arrival, Bundle, CarriedCode, split
from scaler_cluster.process.readiness import notify
from scaler_cluster.runtime.process_watch import ProcessWatch

if TYPE_CHECKING:
    from collections.abc import Callable

# -- files -----------------------------------------------------------------------------------------


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    """Its size is enough to refuse it: a file of terabytes may have no room in memory."""
    path = tmp_path / "large.py"
    with path.open("wb") as file:
        file.truncate(uploads.UPLOAD_BYTES_MAX + 1)
    monkeypatch.setattr(type(path), "read_bytes", lambda _: pytest.fail("it was read"))

    with pytest.raises(ConfigError, match="too large to be sent to workers"):
        uploads.read_file(path)


@pytest.mark.parametrize("at", [0.3, 0.5])
def test_a_damaged_archive_is_refused(tmp_path, at):
    """Whatever the damage is, the error names the file."""
    path = tmp_path / "damaged.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.py", "".join(f"A{n} = {n * n}\n" for n in range(2000)))
    data = bytearray(path.read_bytes())
    start = int(len(data) * at)
    data[start : start + 64] = b"\xff" * 64
    path.write_bytes(data)

    with pytest.raises(ConfigError, match=r"damaged.zip is (damaged|no archive that can be read)"):
        uploads.read_file(path)


def test_the_name_of_the_program_itself_is_refused(tmp_path):
    """A module __main__ would hide that of the worker; one inside of a package hides nothing."""
    (tmp_path / "__main__.py").write_text("")
    with pytest.raises(ConfigError, match="__main__ is the program itself"):
        uploads.read_file(tmp_path / "__main__.py")
    with pytest.raises(ConfigError, match="__main__ is the program itself"):
        uploads.read_directory(tmp_path)
    (tmp_path / "package").mkdir()
    (tmp_path / "__main__.py").rename(tmp_path / "package" / "__main__.py")
    assert uploads.read_directory(tmp_path).modules == ("package",)


def test_only_regular_files_are_packed(tmp_path):
    """To read a pipe would wait for ever; links that lead nowhere are left out as well."""
    (tmp_path / "a.py").write_text("")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "round.py").symlink_to("round.py")
    assert uploads.read_directory(tmp_path).modules == ("a",)
    with pytest.raises(ConfigError, match="no regular file"):
        uploads.read_file(tmp_path / "pipe.py")


# -- code that functions carry -----------------------------------------------------------------------


def test_content_that_cannot_change_is_known_again():
    """It is looked at once, and stored once, as its owner can be watched."""
    view = unchanging(b"content")
    assert bytes(view) == b"content"
    assert may_not_change(view)
    _, owner = identify(view)
    assert type(owner).__weakrefoffset__


def code(revision: int) -> CarriedCode:
    return CarriedCode(Bundle(b"owner", revision, (), {"A": "b"}), ())


def test_a_function_pickled_while_the_code_changes_is_pickled_anew(monkeypatch):
    """Another thread changes the code just as a function was pickled with the old one."""
    pickler = FunctionPickler(None)
    pickler.carry(code(1))
    pickle = pickler._dumps

    def dumps(function):
        pickled = pickle(function)
        pickler.carry(code(2))
        return pickled

    with monkeypatch.context() as context:
        context.setattr(pickler, "_dumps", dumps)
        pickler(len, [])
    carried, _, _ = split(pickler(len, [])[1], ())
    assert carried is not None
    assert carried.bundle.revision == 2


def test_an_interrupted_change_is_taken_back(monkeypatch):
    """Ctrl-C just as functions begin to carry it: they carry what they did before."""
    carried: list[CarriedCode] = []

    class Interrupted(Exception):
        pass

    def carry(one: CarriedCode) -> None:
        carried.append(one)
        if len(carried) == 1:
            raise Interrupted

    session = SimpleNamespace(pickler=SimpleNamespace(carry=carry))
    monkeypatch.setattr("scaler_cluster.client.session_code.present_workers", lambda _: {})
    monkeypatch.setattr("scaler_cluster.client.session_code.call_on_workers", lambda *_: {})
    kept = SessionCode()

    with pytest.raises(Interrupted):
        kept.set_variables(session, "name", {"A": "b"})  # type: ignore[arg-type]
    assert [one.bundle.revision for one in carried] == [1, 2]
    assert carried[-1].bundle.is_empty


def test_functions_carry_a_change_once_all_workers_have_it(monkeypatch):
    """Those that other threads submit meanwhile do not fail if a worker cannot take it."""
    carried: list[int] = []
    errors = [OSError("no room"), None]

    def call(_: object, arrival: Arrival) -> dict[WorkerInfo, Outcome]:
        assert arrival.code is not None
        carried.append(-arrival.code.bundle.revision)
        return {WorkerInfo("left", "host", 1): Outcome(None, errors.pop(0))}

    pickler = SimpleNamespace(carry=lambda code: carried.append(code.bundle.revision))
    session: Any = SimpleNamespace(pickler=pickler)
    monkeypatch.setattr("scaler_cluster.client.session_code.present_workers", lambda _: {})
    monkeypatch.setattr("scaler_cluster.client.session_code.call_on_workers", call)
    kept = SessionCode()

    with pytest.raises(CodeError, match="no room"):
        kept.set_variables(session, "name", {"A": "b"})
    kept.set_variables(session, "name", {"A": "b"})
    assert carried == [-1, 2, -3, 3]


# -- processes -------------------------------------------------------------------------------------


def test_all_clients_of_a_process_are_told_of_its_end(monkeypatch):
    """The process is found to be over as a second client in it is to be watched."""
    over: list[bytes] = []
    loop = SimpleNamespace(add_reader=lambda *_: None, remove_reader=lambda _: None)
    watch = ProcessWatch(loop, over.append, lambda _: True)  # type: ignore[arg-type]
    watch.watch(b"first", os.getpid())

    def gone(pid: int) -> int:
        raise ProcessLookupError(pid)

    monkeypatch.setattr(os, "pidfd_open", gone)
    watch.watch(b"second", os.getpid())
    assert over == [b"first", b"second"]


def test_clients_of_a_process_are_watched_on_if_another_cannot_be(monkeypatch):
    """No descriptor is left for the second client; the end of the first one is told all the same."""
    over: list[bytes] = []
    readers: dict[int, Callable[[], None]] = {}

    def add_reader(fd: int, call: Callable[[int], None], pid: int) -> None:
        readers[fd] = partial(call, pid)

    loop = SimpleNamespace(add_reader=add_reader, remove_reader=readers.pop)
    watch = ProcessWatch(loop, over.append, lambda _: True)  # type: ignore[arg-type]
    watch.watch(b"first", os.getpid())

    def refuse(_: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    watch.watch(b"second", os.getpid())
    (end,) = readers.values()
    end()
    assert over == [b"first"]
    assert not readers


def test_a_closed_signal_pipe_wakes_nobody(monkeypatch):
    """Where pipes are sockets, one that is closed is a wrong value."""

    def refuse(fd: int, data: bytes) -> int:
        raise ValueError(f"invalid file descriptor {fd}, {data!r}")

    monkeypatch.setattr("scaler_cluster.process.readiness._write", refuse)
    notify(-1)
