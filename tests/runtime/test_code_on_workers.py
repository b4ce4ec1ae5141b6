"""Code that a client has its workers use: files, directories, plugins, calls on all of them."""

from __future__ import annotations

import builtins
import importlib
import os
import platform
import sys
import time
import zipfile
from pathlib import Path

import psutil
import pytest

from scaler_exec import (
    Client,
    CodeError,
    ConfigError,
    DeserializeObjectError,
    ScalerExecutor,
    SchedulerClusterCombo,
    actors,
)
from scaler_exec import code as code_on_workers
from scaler_exec.code import Environ, PipInstall
from tests.runtime.code_tasks import (
    Failing,
    Noting,
    call_actor,
    cannot_import,
    fail_in,
    make_of,
    value_of,
)
from tests.runtime.helpers import BOUND_S, wait_gone, wait_until, wait_workers
from tests.runtime.machines import workers_of

NAMES = ("left", "right")


@pytest.fixture(scope="module")
def address(standing):
    """Return the address of a cluster with two workers that have names."""
    with (
        SchedulerClusterCombo(0) as cluster,
        workers_of(cluster.get_address(), 2, worker_names=NAMES),
    ):
        wait_workers(2)
        with Client(cluster.get_address()) as client:
            wait_until(lambda: len(on_all(client, os.getpid)) == 2, "the workers do not join")
        standing |= {child.pid for child in psutil.Process().children()}
        yield cluster.get_address()


@pytest.fixture
def client(address):
    """Return a client of that cluster, whose workers are all there."""
    with Client(address) as client:
        # The test before may have ended one, whose successor is on its way.
        wait_until(lambda: len(on_all(client, os.getpid)) == 2, "the workers do not join")
        yield client


@pytest.fixture
def write(tmp_path):
    """Return what writes a file below a directory of the test, and returns its path."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def on_all(client, *args):
    """Return what all workers make of a call, without their names."""
    return [*code_on_workers.run(client, *args).values()]


def is_missing(client, module: str) -> bool:
    """Return True if no worker has a module for this client."""
    return all(on_all(client, cannot_import, module))


# -- calls on all workers ------------------------------------------------------------------------


def test_each_worker_makes_a_call_once(client, address):
    """run() returns what each worker returned, by its name; also while workers are busy."""
    sleeping = [client.submit(time.sleep, 0.2) for _ in range(4)]

    found = code_on_workers.run(client, os.getpid)

    assert sorted(found) == sorted(NAMES)
    assert len(set(found.values())) == 2
    assert code_on_workers.run(client, os.getpid, workers=["left"]) == {"left": found["left"]}
    assert code_on_workers.run(client, os.getpid, workers=platform.node()) == found
    with ScalerExecutor(address=address) as executor:
        assert code_on_workers.run(executor, pow, 2, exp=3) == {"left": 8, "right": 8}
    for one in sleeping:
        one.result(BOUND_S)


def test_a_call_that_raises_in_one_worker_raises(client):
    """run() raises what the call raised in the one worker that could not make it."""
    where = {pid: name for name, pid in code_on_workers.run(client, os.getpid).items()}

    with pytest.raises(LookupError, match="right"):
        code_on_workers.run(client, fail_in, "right", where)


def test_what_cannot_be_called_is_refused(client, address):
    """Names that no worker has, objects that are no client, and calls from inside of tasks."""
    with pytest.raises(ConfigError, match="no worker or machine is called 'centre': there are"):
        code_on_workers.run(client, os.getpid, workers=["centre"])
    with pytest.raises(TypeError, match="client must be a Client or a ScalerExecutor, not"):
        code_on_workers.run(address, os.getpid)
    with pytest.raises(TypeError, match="run"):
        code_on_workers.run(client, "getpid")

    def inside():
        with Client() as own:
            code_on_workers.run(own, os.getpid)

    with pytest.raises(ConfigError, match="a task cannot call on all workers"):
        client.submit(inside).result(BOUND_S)


# -- files ---------------------------------------------------------------------------------------


def test_a_module_is_there_for_one_client_alone(client, address, write):
    """All workers import an uploaded module, for this client; another one's tasks do not find it."""
    path = write("code_alone.py", "VALUE = 'mine'\n")
    with Client(address) as other:
        code_on_workers.upload_file(client, path)
        for _ in range(2):
            assert on_all(client, value_of, "code_alone") == ["mine"] * 2
            assert is_missing(other, "code_alone")
        path.write_text("VALUE = 'theirs'\n")
        code_on_workers.upload_file(other, path)

        for _ in range(2):
            assert on_all(client, value_of, "code_alone") == ["mine"] * 2
            assert on_all(other, value_of, "code_alone") == ["theirs"] * 2
    assert not any("code_alone" in name for name in sys.modules)


def test_a_changed_file_takes_the_place_of_the_old_one(client, write, monkeypatch):
    """Functions, arguments and results are those of the newest upload, by name as everywhere."""
    source = "VALUE = {0}\nclass Thing:\n    value = {0}\ndef make(): return Thing()\n"
    source += "def read(thing): return VALUE, thing.value, type(thing) is Thing\n"
    path = write("code_changing.py", source.format(1))
    monkeypatch.syspath_prepend(str(path.parent))
    code_changing = importlib.import_module("code_changing")

    for value in (1, 2, 3):
        path.write_text(source.format(value))
        code_on_workers.upload_file(client, path)
        made = client.submit(code_changing.make).result(BOUND_S)
        assert type(made) is code_changing.Thing
        assert client.map(code_changing.read, [made] * 4) == [(value, value, True)] * 4
        graph = {"a": (code_changing.make,), "b": (code_changing.read, "a")}
        assert client.get(graph, ["b"]) == {"b": (value, value, True)}
    monkeypatch.delitem(sys.modules, "code_changing")


def test_tasks_that_a_task_submits_have_the_code(client, write):
    """Whichever worker runs them, and whether they are submitted one by one or as a map."""
    code_on_workers.upload_file(client, write("code_nested.py", "VALUE = 5\n"))

    def outer():
        with Client() as own:
            futures = [own.submit(value_of, "code_nested") for _ in range(4)]
            return [one.result() for one in futures] + own.map(value_of, ["code_nested"] * 8)

    assert client.submit(outer).result(BOUND_S) == [5] * 12


def test_a_task_goes_on_with_its_code_after_one_that_has_none(make_executor, write):
    """One that ran on its stack had other code; what is imported later is still that of its client.

    The same holds for the tasks after it, which were called before.
    """
    executor = make_executor(1)
    code_on_workers.upload_file(executor, write("code_before.py", "VALUE = 1\n"))
    code_on_workers.upload_file(executor, write("code_after.py", "VALUE = 2\n"))
    code_on_workers.upload_file(executor, write("code_later.py", "VALUE = 3\n"))

    def outer():
        with Client() as own:
            pickler = own._session.pickler
            carried = pickler._functions._code
            pickler.carry(None)
            inner = own.submit(cannot_import, "code_before").result()
            return inner, value_of("code_after"), pickler._functions._code is carried

    assert executor.submit(value_of, "code_before").result(BOUND_S) == 1
    assert executor.submit(outer).result(BOUND_S) == (True, 2, True)
    assert executor.submit(value_of, "code_later").result(BOUND_S) == 3


def test_a_change_leaves_the_modules_of_other_files_alone(client, write):
    """What was made before an upload, or a plugin, is of the same class, and state stays."""
    source = "class Thing: pass\nKEPT = Thing()\n"
    code_on_workers.upload_file(client, write("code_steady.py", source))

    def is_same() -> bool:
        import code_steady  # type: ignore[import-not-found]

        return getattr(builtins, "code_steady_kept", code_steady.KEPT) is code_steady.KEPT

    def note() -> None:
        import code_steady

        builtins.code_steady_kept = code_steady.KEPT  # type: ignore[attr-defined]

    on_all(client, note)
    code_on_workers.upload_file(client, write("code_other.py", "VALUE = 1\n"))
    code_on_workers.register_plugin(client, Environ({"SCALER_TEST_STEADY": "1"}))
    assert on_all(client, is_same) == [True, True]
    code_on_workers.upload_file(client, write("code_steady.py", source + "VALUE = 1\n"))
    assert on_all(client, is_same) == [False, False]


def test_an_actor_keeps_the_code_of_its_class(client, address, write):
    """A call of a client that has other modules of the same names finds those of the actor."""
    source = "import pickle\nclass Model:\n    def lazy(self):\n        import code_lazy\n"
    source += (
        "        return code_lazy.VALUE, pickle.loads(pickle.dumps(self)).__class__ is Model\n"
    )
    path = write("code_actor.py", source)
    lazy = write("code_lazy.py", "VALUE = 'first'\n")
    code_on_workers.upload_directory(client, path.parent)
    model = actors.create(client, make_of, "code_actor", "Model")
    with Client(address) as other:
        path.write_text("")
        lazy.write_text("VALUE = 'second'\n")
        code_on_workers.upload_directory(other, path.parent)

        assert other.submit(call_actor, model, "lazy").result(BOUND_S) == ("first", True)
        assert other.submit(value_of, "code_lazy").result(BOUND_S) == "second"
    assert actors.call(model, "lazy").result(BOUND_S) == ("first", True)
    actors.destroy(model).result(BOUND_S)


def test_packages_come_as_archives_and_as_directories(client, write, tmp_path):
    """A zip, a wheel, a package's directory and one of modules; files of data come along."""
    init = write("code_package/__init__.py", "from code_package.part import VALUE\n")
    write("code_package/part.py", "from pathlib import Path\n"
          "VALUE = Path(__file__).with_name('data.txt').read_text()\n")  # fmt: skip
    write("code_package/data.txt", "some data")
    write("code_package/.git/config", "secret")
    write("code_beside.py", "VALUE = 'beside'\n")
    for name in ("pack.zip", "pack-1.0-py3-none-any.whl"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(f"from_{name[4:5] == '-'}.py", f"VALUE = {name!r}\n")
        code_on_workers.upload_file(client, tmp_path / name)
    assert on_all(client, value_of, "from_False") == ["pack.zip"] * 2
    assert on_all(client, value_of, "from_True") == ["pack-1.0-py3-none-any.whl"] * 2

    code_on_workers.upload_directory(client, init.parent)
    assert on_all(client, value_of, "code_package") == ["some data"] * 2
    assert is_missing(client, "code_beside")
    code_on_workers.upload_directory(client, init.parents[1])
    assert on_all(client, value_of, "code_beside") == ["beside"] * 2
    found = on_all(client, lambda: importlib.import_module("code_package").__path__[0])
    assert sorted(one.name for one in Path(found[0]).iterdir() if one.name != "__pycache__") == [
        "__init__.py", "data.txt", "part.py",
    ]  # fmt: skip


def test_a_file_that_hides_a_module_of_the_workers_does_so_for_one_client(client, address, write):
    """Where the workers have the module themselves, others go on with theirs."""
    code_on_workers.upload_file(client, write("colorsys.py", "VALUE = 'uploaded'\n"))
    with Client(address) as other:
        for _ in range(2):
            assert on_all(client, value_of, "colorsys") == ["uploaded"] * 2
            with pytest.raises(AttributeError):
                code_on_workers.run(other, value_of, "colorsys")


def test_workers_that_come_later_have_it_too(write):
    """A worker of another cluster that joins later, and one after the scheduler was killed."""
    before = set(psutil.Process().children())
    with SchedulerClusterCombo(1) as cluster, Client(cluster.get_address()) as client:
        code_on_workers.upload_file(client, write("code_late.py", "VALUE = 7\n"))
        code_on_workers.register_plugin(client, Environ({"SCALER_TEST_LATE": "set"}))
        started = set(psutil.Process().children()) - before
        (victim,) = (one for one in started if "scaler_cluster.runtime.scheduler" in one.cmdline())
        victim.kill()
        wait_gone(victim.pid)
        assert client.submit(value_of, "code_late").result(BOUND_S) == 7
        with workers_of(cluster.get_address(), 1, worker_names=("late",)):
            wait_until(lambda: len(on_all(client, os.getpid)) == 2, "no worker joins", BOUND_S)

            assert on_all(client, value_of, "code_late") == [7, 7]
            assert on_all(client, os.getenv, "SCALER_TEST_LATE") == ["set"] * 2


@pytest.mark.parametrize(
    ("name", "entries", "reason"),
    [
        ("up.zip", {"a.py": "", "../b.py": ""}, "a path that may lead out of its directory"),
        ("root.zip", {"/b.py": ""}, "a path that may lead out of its directory"),
        ("drive.zip", {"c:b.py": ""}, "a path that may lead out of its directory"),
        ("native.zip", {"a.py": "", "b.so": ""}, "native code"),
        ("empty.zip", {"a.txt": ""}, "nothing that can be imported"),
        ("some-1.0-cp312-cp312-linux_x86_64.whl", {"a.py": ""}, "a wheel for some systems only"),
    ],
)
def test_files_that_cannot_be_used_are_refused(client, tmp_path, name, entries, reason):
    """Each at the door, with a sentence; no worker hears of it."""
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        for entry, text in entries.items():
            archive.writestr(entry, text)

    with pytest.raises(ConfigError, match=reason):
        code_on_workers.upload_file(client, tmp_path / name)


def test_paths_that_cannot_be_used_are_refused(client, tmp_path, monkeypatch):
    """Other files, broken archives, names of no module, empty directories, too much."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.zip").write_text("no archive")
    (tmp_path / "has-dash.py").touch()
    (tmp_path / "fine.py").write_text("VALUE = 1\n" * 100)
    for name, reason in {
        "notes.txt": "no .py, .zip, .whl or .egg file",
        "broken.zip": "no archive that can be read",
        "has-dash.py": "is no name of a module",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            code_on_workers.upload_file(client, tmp_path / name)
    for name, reason in {
        "empty": "nothing that can be imported",
        "fine.py": "no directory",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            code_on_workers.upload_directory(client, tmp_path / name)
    with pytest.raises(FileNotFoundError):
        code_on_workers.upload_file(client, tmp_path / "nowhere.py")
    monkeypatch.setattr("scaler_cluster.client.session_code.UPLOAD_BYTES_MAX", 100)
    with pytest.raises(ConfigError, match="may have 100 bytes together"):
        code_on_workers.upload_file(client, tmp_path / "fine.py")
    monkeypatch.setattr("scaler_cluster.client.uploads.UPLOAD_BYTES_MAX", 100)
    with pytest.raises(ConfigError, match="too large to be sent to workers"):
        code_on_workers.upload_file(client, tmp_path / "fine.py")


# -- plugins -------------------------------------------------------------------------------------


def lines_of(path: str) -> list[str]:
    return sorted(Path(path).read_text().split())


def test_plugins_are_set_up_once_in_each_worker(client, address, tmp_path):
    """Before the next task of this client; torn down when they are replaced or unregistered."""
    path = str(tmp_path / "lines")
    (tmp_path / "lines").touch()
    assert code_on_workers.register_plugin(client, Noting(path)) == "Noting"
    first = ["+left", "+right"]
    assert lines_of(path) == first
    with Client(address) as other:
        assert other.map(abs, range(20)) == list(range(20))
    assert client.map(abs, range(20)) == list(range(20))
    assert lines_of(path) == first

    code_on_workers.register_plugin(client, Noting(path, "new-"), "Noting")
    second = sorted([*first, "-left", "-right", "+new-left", "+new-right"])
    assert lines_of(path) == second
    code_on_workers.unregister_plugin(client, "Noting")
    assert lines_of(path) == sorted([*second, "-new-left", "-new-right"])
    with pytest.raises(ConfigError, match="no plugin was registered as 'Noting'"):
        code_on_workers.unregister_plugin(client, "Noting")


def test_plugins_are_torn_down_as_workers_leave(make_executor, tmp_path):
    """A worker that is sent off tears down what it has set up, and the one in its place sets up."""
    path = tmp_path / "lines"
    path.touch()
    executor = make_executor(1, max_tasks_per_child=3)
    code_on_workers.register_plugin(executor, Noting(str(path)))
    pids = {executor.submit(os.getpid).result(BOUND_S) for _ in range(7)}

    def counts() -> tuple[int, int]:
        return path.read_text().count("+"), path.read_text().count("-")

    assert len(pids) >= 2
    wait_until(lambda: counts() in {(n, n - 1) for n in (2, 3, 4)}, lambda: str(counts()))


def test_a_plugin_that_fails_is_not_registered(client):
    """The error says in which worker of which machine, and why; the other workers go on, too."""
    with pytest.raises(CodeError, match="^1 of 2 workers cannot use it, so none does: ") as caught:
        code_on_workers.register_plugin(client, Failing())

    assert "the worker right, process " in str(caught.value)
    assert f" on {platform.node()} cannot run tasks of this client: the plugin" in str(caught.value)
    assert "OSError('no licence here')" in str(caught.value)
    assert list(caught.value.failed) == ["right"]
    assert isinstance(caught.value.failed["right"], DeserializeObjectError)
    assert on_all(client, abs, -1) == [1, 1]
    for bad in (Failing, object()):
        with pytest.raises(TypeError, match=r"plugin must be an object with setup\(worker\)"):
            code_on_workers.register_plugin(client, bad)


def test_variables_are_set_for_one_client_alone(client, address):
    """They are set while tasks of this client run, and are as before for all others."""
    code_on_workers.register_plugin(client, Environ({"SCALER_TEST_ONE": 1, "HOME": "/elsewhere"}))
    with Client(address) as other:
        for _ in range(2):
            assert on_all(client, os.getenv, "SCALER_TEST_ONE") == ["1", "1"]
            assert on_all(other, os.getenv, "SCALER_TEST_ONE") == [None, None]
            assert on_all(other, os.getenv, "HOME") == [os.environ["HOME"]] * 2
    code_on_workers.unregister_plugin(client, "Environ")
    assert on_all(client, os.getenv, "SCALER_TEST_ONE") == [None, None]
    with pytest.raises(ConfigError, match="cannot be set in an environment"):
        Environ({"A=B": 1})
    with pytest.raises(TypeError, match="texts as names"):
        Environ(dict.fromkeys([1], 1))  # type: ignore[list-item]


def test_pip_runs_once_for_all_workers_of_an_environment(client, tmp_path):
    """Two workers of one environment run it once between them; its output says what went wrong."""
    wheel = tmp_path / "scaler_own-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("scaler_own.py", "VALUE = 'installed'\n")
        head = "scaler_own-1.0.dist-info"
        archive.writestr(
            f"{head}/METADATA", "Metadata-Version: 2.1\nName: scaler_own\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{head}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{head}/RECORD", "")
    log, target = tmp_path / "log", str(tmp_path / "target")
    options = ["--no-index", "--no-deps", "--target", target, "--log", str(log)]
    code_on_workers.register_plugin(client, Environ({"PYTHONNOUSERSITE": "1"}))

    code_on_workers.register_plugin(client, PipInstall([str(wheel)], options))

    assert (Path(target) / "scaler_own.py").exists()
    assert log.read_text().count("Successfully installed scaler") == 1
    with pytest.raises(CodeError, match="(?s)pip install scaler-nowhere ended with status 1 on .*"
                       "No matching distribution"):  # fmt: skip
        code_on_workers.register_plugin(client, PipInstall(["scaler-nowhere"], ["--no-index"]))
    with pytest.raises(ConfigError, match="options of pip go to pip_options"):
        PipInstall(["--upgrade"])
    with pytest.raises(TypeError, match="a list of texts"):
        PipInstall("numpy")


# -- modules that workers lack -------------------------------------------------------------------


def test_a_worker_that_lacks_a_module_says_where_and_what_to_do(client, write, monkeypatch):
    """Whether a task imports it, or its function is of it; then it travels by value."""
    path = write("code_local.py", "VALUE = 3\ndef value(): return VALUE\n")
    monkeypatch.syspath_prepend(str(path.parent))
    code_local = importlib.import_module("code_local")

    error = client.submit(value_of, "code_local").exception(BOUND_S)
    assert type(error) is ModuleNotFoundError
    assert str(error) == "No module named 'code_local'"
    (note,) = vars(error)["__notes__"]
    other = client.submit(code_local.value).exception(BOUND_S)
    assert type(other) is DeserializeObjectError
    for text in (note, str(other)):
        assert "The module code_local is missing in the worker " in text
        assert f" on {platform.node()} (Python " in text
        assert "scaler_exec.code sends the file (upload_file; for an actor before it is " in text
        assert "made), or its functions by value: " in text
        assert "register_pickle_by_value(code_local)" in text

    code_on_workers.register_pickle_by_value(code_local)
    assert client.submit(code_local.value).result(BOUND_S) == 3
    with pytest.raises(TypeError, match="a module, not its name"):
        code_on_workers.register_pickle_by_value("code_local")
    monkeypatch.delitem(sys.modules, "code_local")
