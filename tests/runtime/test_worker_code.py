"""Uploaded code in a worker: where it is unpacked, and which modules a change leaves alone."""

from __future__ import annotations

import errno
import importlib
import io
import pickle
import sys
import zipfile
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path
from weakref import WeakValueDictionary

import pytest

from scaler_cluster.pickling.code_bundle import Bundle, CarriedCode, Part
from scaler_cluster.runtime import worker_code

OWNER, OTHER = b"one client", b"other client"


def archive(files: dict[str, str] | None = None) -> memoryview:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, text in (files or {"a.py": "VALUE = 1\n"}).items():
            made.writestr(zipfile.ZipInfo(name), text)
    return memoryview(stream.getvalue())


class Plugin:
    """Is set up, whatever the worker."""

    def setup(self, _: object) -> None:
        """Do nothing."""


def part(name: str, files: dict[str, str]) -> tuple[Part, memoryview]:
    content = archive(files)
    modules = tuple({one.partition("/")[0].removesuffix(".py"): None for one in files})
    return Part(False, name, blake2b(content, digest_size=16).digest(), modules), content


def payload(
    revision: int, *parts: tuple[Part, memoryview], plugin: bytes = b"", owner: bytes = OWNER
) -> bytes:
    """Return a function that brings this code."""
    if plugin:
        parts = (*parts, (Part(True, "plugin", plugin), memoryview(plugin)))
    bundle = Bundle(owner, revision, tuple(one for one, _ in parts))
    return CarriedCode(bundle, tuple(it for _, it in parts)).put_before(b"", [], stores=False)[0]


@pytest.fixture
def enter(tmp_path, monkeypatch):
    """Return what lets this process use the code that a function brings, until the test ends."""
    monkeypatch.setattr(worker_code, "home", str(tmp_path))
    monkeypatch.setattr(worker_code, "_is_kept", False)
    monkeypatch.setattr(worker_code, "_known", WeakValueDictionary())
    monkeypatch.setattr(worker_code, "_recent", OrderedDict())
    monkeypatch.setattr(worker_code, "_owners", {})
    before = sys.path[:]
    held = []

    def enter(code: bytes) -> None:
        worker_code.enter(code, [])
        # As the functions do that were unpickled with it.
        held.append(worker_code.active)

    yield enter
    worker_code._is_kept = False
    worker_code.switch(None)
    assert sys.path == before


def load(name: str):
    return importlib.import_module(name)


# -- what stays the same -------------------------------------------------------------------------

MAIN = part("main", {"w_main.py": "VALUE = 1\n", "w_pack/__init__.py": "", "w_pack/sub.py": ""})
USER = part("user", {"w_user.py": "from w_base import VALUE\n"})
ABOVE = part("above", {"w_above/__init__.py": "", "w_above/part.py": "import w_user\n"})


def base(value: int) -> tuple[Part, memoryview]:
    return part("base", {"w_base.py": f"VALUE = {value}\n"})


def test_modules_of_files_that_stay_are_the_same_after_a_change(enter):
    """A plugin, and a file that has nothing to do with them, split none of their classes."""
    enter(payload(1, MAIN))
    main, pack = load("w_main"), load("w_pack")
    enter(payload(2, MAIN, plugin=pickle.dumps(Plugin())))
    assert load("w_main") is main
    enter(payload(3, MAIN, base(1)))
    assert (load("w_main"), load("w_pack")) == (main, pack)
    sub = load("w_pack.sub")
    enter(payload(1, MAIN))

    # Of a task that was submitted before the change.
    assert load("w_pack.sub") is sub
    enter(payload(4, base(1)))
    with pytest.raises(ModuleNotFoundError):
        load("w_main")


def test_modules_that_name_a_changed_one_are_imported_anew(enter):
    """They, and those that name them, in turn; no others."""
    enter(payload(1, MAIN, base(1), USER, ABOVE))
    main, above, user = load("w_main"), load("w_above.part"), load("w_user")
    assert user.VALUE == 1
    enter(payload(2, MAIN, USER, ABOVE, base(2)))

    assert load("w_user").VALUE == 2
    assert load("w_above.part") is not above
    assert load("w_main") is main
    enter(payload(1, MAIN, base(1), USER, ABOVE))
    assert load("w_user") is user


def test_a_file_that_hides_a_module_of_another_is_a_change(enter):
    """The newest file that has a module counts."""
    enter(payload(1, MAIN))
    assert load("w_main").VALUE == 1
    enter(payload(2, MAIN, part("hides", {"w_main.py": "VALUE = 2\n"})))

    assert load("w_main").VALUE == 2


def test_a_change_that_is_taken_back_leaves_the_modules_of_before(enter):
    """The same files come back with a new number; what was imported from them is there again."""
    enter(payload(1, base(1)))
    first = load("w_base")
    enter(payload(2, base(2)))
    assert load("w_base") is not first
    enter(payload(3, base(1)))

    assert load("w_base") is first


def test_another_client_shares_nothing(enter):
    """Each has the state of its own modules, also if the files are equal."""
    enter(payload(1, MAIN))
    main = load("w_main")
    enter(payload(2, MAIN, owner=OTHER))

    assert load("w_main") is not main
    enter(payload(1, MAIN))
    assert load("w_main") is main


def test_the_worker_of_an_actor_keeps_its_code(enter):
    """Neither another client's code, nor nobody's, nor a newer one of its own takes its place."""
    enter(payload(1, base(1)))
    kept = load("w_base")
    worker_code.keep()
    for other in (payload(1, base(2), owner=OTHER), b"a plain pickle", payload(2, base(2))):
        enter(other)
        assert load("w_base") is kept


def test_plugins_of_uploaded_modules_are_torn_down_among_these(enter, tmp_path):
    """The process ends while it runs tasks of another client."""
    source = "class Plugin:\n    def setup(self, worker): pass\n    def teardown(self, worker):\n"
    source += f"        import w_base\n        open({str(tmp_path / 'end')!r}, 'w').close()\n"
    uploaded = part("plugged", {"w_plugin.py": source})
    enter(payload(1, base(1), uploaded))
    plugin = pickle.dumps(load("w_plugin").Plugin())
    enter(payload(2, base(1), uploaded, plugin=plugin))
    enter(b"a plain pickle")

    worker_code.close()
    assert (tmp_path / "end").exists()


# -- where it is unpacked ------------------------------------------------------------------------


def test_a_failure_to_put_unpacked_code_in_place_is_raised(tmp_path, monkeypatch):
    """Else the worker would import from a directory that is not there."""

    def refuse(self: Path, _: Path) -> Path:
        raise OSError(errno.EACCES, "refused", str(self))

    monkeypatch.setattr(worker_code, "home", str(tmp_path))
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="refused"):
        worker_code._directory_of(archive())
    assert list((tmp_path / worker_code.DIRECTORY).iterdir()) == []


def test_a_worker_that_was_faster_is_no_failure(tmp_path, monkeypatch):
    """What it has put there serves both."""
    rename = Path.rename

    def be_slower(self: Path, target: Path) -> Path:
        target.mkdir()
        (target / "a.py").write_text("VALUE = 1\n")
        return rename(self, target)

    monkeypatch.setattr(worker_code, "home", str(tmp_path))
    monkeypatch.setattr(Path, "rename", be_slower)
    assert (Path(worker_code._directory_of(archive())) / "a.py").exists()
