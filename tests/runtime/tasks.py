"""What the tests let workers do. Imported in workers: nothing here may be slow to import."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

EXIT_CODE = 7
FOREVER_S = 1000.0


# -- five ways to go wrong -----------------------------------------------------------------------


def fail(how: str) -> None:
    """Go wrong in one of five ways."""
    if how == "raise":
        raise ValueError("raised on purpose")
    if how == "exit":
        sys.exit("left on purpose")
    if how == "os_exit":
        os._exit(EXIT_CODE)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(FOREVER_S)
    if how == "segfault":
        ctypes.string_at(0)
    raise AssertionError(f"{how} did not do it")


class FailsAtPickle:
    """Goes wrong when it is pickled. May be called, but nobody ever gets so far."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self):
        fail(self.how)

    def __call__(self) -> None:
        raise AssertionError("called")


class RaisesAtPickle:
    """Raises an exception of Python when it is pickled; may be called, as above."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self):
        raise_this(self.name, "on purpose")

    def __call__(self) -> None:
        raise AssertionError("called")


class FailsAtUnpickle:
    """Goes wrong when it is unpickled; may be called, but nobody ever gets so far."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self):
        return fail, (self.how,)

    def __call__(self) -> None:
        raise AssertionError("called")


class FailsAtUnpickleIn:
    """Goes wrong when it is unpickled in a certain process, and in no other."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __reduce__(self):
        return _fail_in, (self.pid,)


def _fail_in(pid: int) -> FailsAtUnpickleIn:
    if os.getpid() == pid:
        fail("raise")
    return FailsAtUnpickleIn(pid)


def make(name: str, *args: object) -> object:
    """Make an instance of a class of this module."""
    return globals()[name](*args)


def make_lock_in_record(name: str) -> dict[str, object]:
    """Return what cannot be pickled, and why not lies deep in it."""
    return {"records": [{"name": name}, {"lock": threading.Lock()}]}


def make_unpicklable(how: str) -> FailsAtPickle:
    """Return what cannot be pickled."""
    return FailsAtPickle(how)


# -- tasks that say where they are ---------------------------------------------------------------


def announce(path: str, pid: int | None = None) -> None:
    """Let the test see that this worker got so far; the file holds its pid, or another one."""
    part = Path(f"{path}.part")
    part.write_text(str(pid or os.getpid()))
    part.replace(path)


def wait_for(path: str) -> None:
    """Wait until a file is there."""
    while not os.path.exists(path):
        time.sleep(0.002)


def hold(started: str, release: str) -> int:
    """Run from one file's coming to another's; return the pid."""
    announce(started)
    wait_for(release)
    return os.getpid()


def sleep(started: str) -> None:
    """Sleep for ever, where an exception can reach."""
    announce(started)
    time.sleep(FOREVER_S)


def spin(started: str) -> None:
    """Compute for ever in Python."""
    announce(started)
    while True:
        pass


def spin_in_c(started: str) -> None:
    """Compute for ever in C, holding the interpreter lock."""
    part = Path(f"{started}.part")
    part.write_text(str(os.getpid()))
    # Announced from C: no exception comes between that and the rest.
    announced = map(os.replace, [str(part)], [started])
    deque(itertools.chain(announced, itertools.repeat(None)), maxlen=0)


def refuse_to_stop(started: str, pid: int | None = None) -> None:
    """Swallow every exception that is to stop it."""
    announces = True
    while True:
        try:
            if announces:
                announces = False
                announce(started, pid)
            time.sleep(FOREVER_S)
        except BaseException:
            continue


def run_child(started: str) -> None:
    """Wait for a child process, as subprocess.run does; the file holds the child's pid."""
    code = f"import os; print(os.getpid(), flush=True); import time; time.sleep({FOREVER_S})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            Path(f"{started}.part").write_bytes(child.stdout.readline())
            Path(f"{started}.part").replace(started)
            child.wait()
        except BaseException:
            child.kill()
            raise


def refuse_to_stop_with_child(started: str) -> None:
    """Start a child process, and swallow every exception."""
    child = subprocess.Popen(["sleep", str(FOREVER_S)])
    refuse_to_stop(started, child.pid)


def leave_child() -> int:
    """Start a child process, let it go, and return its pid."""
    return subprocess.Popen(["sleep", str(FOREVER_S)]).pid


def die_leaving_daemon(pid_file: str) -> None:
    """Die while a process that left the group holds on to stderr."""
    child = subprocess.Popen(["sleep", str(FOREVER_S)], start_new_session=True)
    Path(pid_file).write_text(str(child.pid))
    os._exit(EXIT_CODE)


def fork_and_return() -> str:
    """Come back twice: once in the worker, once in a forked child of it."""
    pid = os.fork()
    if pid == 0:
        return "child"
    os.waitpid(pid, 0)
    return "worker"


def use_multiprocessing(numbers: list[int]) -> list[int]:
    """Start a process pool of the standard library inside a task."""
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2, initializer=print, initargs=("up",)) as pool:
        return pool.map(abs, numbers)


def fail_times(directory: str, times: int, how: str) -> int:
    """Go wrong the first few times; return how often it was started."""
    path = Path(directory)
    (path / f"{time.monotonic_ns()}-{os.getpid()}").touch()
    count = len(list(path.iterdir()))
    if count <= times:
        fail(how)
    return count


def append_line(path: str, line: str) -> None:
    """Add a line to a file."""
    with open(path, "a") as stream:
        stream.write(f"{line}\n")


def write_and_die(text: str) -> None:
    """Say some last words on stderr."""
    sys.stderr.write(text)
    os._exit(EXIT_CODE)


def allocate(nbytes: int, release: str) -> None:
    """Hold that much memory, every page of it."""
    block = bytearray(nbytes)
    block[::4096] = b"x" * len(block[::4096])
    wait_for(release)


def load_much() -> None:
    """Hold 200 MB for ever."""
    block = b"x" * 200_000_000
    time.sleep(FOREVER_S)
    del block


def square(number: int) -> int:
    """Return the square."""
    return number * number


def nap(number: int) -> int:
    """Take a moment; return the argument."""
    time.sleep(0.001)
    return number


def print_both(out: str, err: str) -> None:
    """Print to both streams."""
    print(out)
    print(err, file=sys.stderr)


def print_much(nbytes: int) -> int:
    """Print a lot."""
    line = "x" * 99 + "\n"
    for _ in range(nbytes // 100):
        sys.stdout.write(line)
    return nbytes


# -- exceptions ----------------------------------------------------------------------------------


class TwoArguments(Exception):
    """Pickles, but does not unpickle: its __init__ wants more than its args hold."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")
        self.second = second


class Locked(Exception):
    """Cannot be pickled as a whole: it holds a lock."""

    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


@dataclass(frozen=True)
class Frozen(Exception):
    """Refuses to have attributes set, also when it is unpickled."""

    number: int

    def __reduce__(self):
        return Frozen, (self.number,)


class Unspeakable(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__

    def __reduce__(self):
        raise RuntimeError("no words")


class UnpicklesOnlyIn(Exception):
    """Unpickles in every process but one."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid)

    def __reduce__(self):
        return _make_unless, (self.args[0],)


def _make_unless(pid: int) -> UnpicklesOnlyIn:
    if os.getpid() == pid:
        raise RuntimeError("not here")
    return UnpicklesOnlyIn(pid)


def raise_this(name: str, *args: object) -> None:
    """Raise an exception of this module, or of Python."""
    kind = globals().get(name) or getattr(__import__("builtins"), name)
    raise kind(*args)


def raise_local(text: str) -> None:
    """Raise an exception of a class that cannot be pickled."""
    lock = threading.Lock()

    class Local(Exception):
        def held(self) -> object:
            return lock

    raise Local(text)


def raise_chained() -> None:
    """Raise an exception that has a cause."""
    try:
        raise KeyError("the cause")
    except KeyError as error:
        raise ValueError("the effect") from error


def recurse_for_ever(depth: int = 0) -> int:
    """Exceed the recursion limit."""
    return recurse_for_ever(depth + 1) + 1


def unpickle_to_unspeakable() -> None:
    """Stands for the unpickling of :class:`RaisesUnspeakable`."""
    raise Unspeakable


class RaisesUnspeakable:
    """Cannot be unpickled, with an error that cannot be shown; may be called in vain."""

    def __call__(self) -> None:
        raise AssertionError("called")

    def __reduce__(self):
        return unpickle_to_unspeakable, ()


def open_files() -> list[int]:
    """Return the inodes of the files that this process has open."""
    inodes = []
    for fd in range(256):
        try:
            inodes.append(os.fstat(fd).st_ino)
        except OSError:
            continue
    return inodes
