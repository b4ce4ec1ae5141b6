"""Whole programs: how they start, what they leave behind, how they end."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.runtime.helpers import BOUND_S, environment, run_program, wait_gone, wait_until


def check(source: str, out: str, *, stdin: bool = False) -> None:
    """Run a program; it must print exactly this, nothing on stderr, and exit with 0."""
    ended = run_program(textwrap.dedent(source), stdin=stdin)

    assert (ended.stdout, ended.stderr, ended.returncode) == (out, "", 0)


# -- starting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stdin", [False, True])
def test_a_program_needs_no_main_guard(stdin) -> None:
    """A program from a command line or from standard input uses its own functions and classes."""
    check(
        """
        from scaler_exec import ScalerExecutor
        FACTOR = 3
        class Number:
            def __init__(self, value): self.value = value
        def triple(number): return Number(number.value * FACTOR)
        with ScalerExecutor(2) as executor:
            numbers = [Number(1), Number(2)]
            print([n.value for n in executor.map(triple, numbers)])
            print(executor.submit(triple, Number(5)).result().value)
        """,
        "[3, 6]\n15\n",
        stdin=stdin,
    )


def test_a_script_needs_no_main_guard(tmp_path) -> None:
    """A script file is not run again in the workers, and what it imports from beside it works."""
    (tmp_path / "beside.py").write_text("def double(n): return 2 * n\n")
    script = tmp_path / "script.py"
    script.write_text(
        "print('started')\n"
        "from beside import double\n"
        "from scaler_exec import ScalerExecutor\n"
        "def inc(n): return n + 1\n"
        "with ScalerExecutor(2) as executor:\n"
        "    print(list(executor.map(double, range(3))), list(executor.map(inc, range(3))))\n"
    )
    ended = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=environment(),
        cwd="/",
        timeout=2 * BOUND_S,
        check=False,
    )

    assert (ended.stdout, ended.stderr) == ("started\n[0, 2, 4] [1, 2, 3]\n", "")


def test_an_interactive_session_can_use_it() -> None:
    """Functions typed into the interactive interpreter run in workers."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-i", "-q"],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment() | {"TERM": "dumb", "PYTHON_BASIC_REPL": "1"},
    ) as process:
        os.close(slave)
        for line in (
            "from scaler_exec import ScalerExecutor",
            "executor = ScalerExecutor(1)",
            "def cube(n): return n ** 3",
            "",
            "print('cube', executor.submit(cube, 3).result())",
            "executor.shutdown()",
            "exit()",
        ):
            os.write(master, line.encode() + b"\n")
        out, _ = process.communicate(timeout=BOUND_S)
    os.close(master)

    assert "cube 27" in out
    assert process.returncode == 0


def test_a_program_without_any_work_ends_cleanly() -> None:
    """Making an executor and doing nothing with it leaves nothing and prints nothing."""
    check("from scaler_exec import ScalerExecutor; executor = ScalerExecutor(2)", "")


def test_starting_and_ending_many_leaks_nothing() -> None:
    """Executors made one after the other leave no descriptor and no thread behind."""
    check(
        """
        import gc, os, threading
        from scaler_exec import ScalerExecutor
        def round():
            with ScalerExecutor(1) as executor:
                executor.submit(abs, -1).result()
            gc.collect()
            return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        first = [round() for _ in range(2)][-1]
        last = [round() for _ in range(4)][-1]
        print(last <= first, threading.active_count() <= 2)
        """,
        "True True\n",
    )


# -- ending --------------------------------------------------------------------------------------


def test_work_submitted_before_the_end_is_finished() -> None:
    """A program that ends without waiting has its pending tasks run first, callbacks included."""
    check(
        """
        import time
        from scaler_exec import ScalerExecutor
        def say(n):
            time.sleep(0.05)
            print("task", n, flush=True)
        executor = ScalerExecutor(1)
        futures = [executor.submit(say, n) for n in range(4)]
        futures[-1].add_done_callback(lambda _: print("callback", flush=True))
        print("end of main", flush=True)
        """,
        "end of main\ntask 0\ntask 1\ntask 2\ntask 3\ncallback\n",
    )


def test_a_shutdown_without_waiting_finishes_the_work() -> None:
    """shutdown(wait=False) at the end of a program still lets its tasks run."""
    check(
        """
        from scaler_exec import ScalerExecutor
        executor = ScalerExecutor(2)
        for n in range(5):
            executor.submit(print, "task", flush=True)
        executor.shutdown(wait=False)
        """,
        "task\n" * 5,
    )


def test_an_unfinished_map_is_finished() -> None:
    """The calls of a map whose iterator lives at the end of a program are run."""
    check(
        """
        from scaler_exec import ScalerExecutor
        executor = ScalerExecutor(2)
        results = executor.map(print, ["x"] * 10)
        """,
        "x\n" * 10,
    )


def test_the_exit_status_is_the_programs_own() -> None:
    """sys.exit(3) with an open executor ends with status 3 and prints nothing."""
    ended = run_program(
        "import sys\n"
        "from scaler_exec import ScalerExecutor\n"
        "executor = ScalerExecutor(1)\n"
        "executor.submit(abs, 1)\n"
        "sys.exit(3)\n"
    )

    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 3)


def test_an_uncaught_exception_ends_the_program_as_ever() -> None:
    """An exception in the main program is shown, and the executor does not hold it up."""
    ended = run_program(
        "from scaler_exec import ScalerExecutor\n"
        "with ScalerExecutor(1) as executor:\n"
        "    executor.submit(abs, 1)\n"
        "    1 / 0\n"
    )

    assert ended.returncode == 1
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert "scaler_cluster" not in ended.stderr


def test_an_uncaught_remote_exception_shows_the_remote_traceback() -> None:
    """What a task raised and nobody caught is shown with the worker's traceback."""
    ended = run_program(
        "from scaler_exec import ScalerExecutor\n"
        "def divide(a, b): return a / b\n"
        "with ScalerExecutor(1) as executor:\n"
        "    executor.submit(divide, 1, 0).result()\n"
    )

    assert ended.returncode == 1
    assert ended.stderr.count("ZeroDivisionError: division by zero") >= 2
    assert ", in divide" in ended.stderr
    assert "direct cause" in ended.stderr


def test_a_client_at_the_end_of_a_program_waits_for_its_tasks(cluster, tmp_path) -> None:
    """A client waits for its tasks at the end of a program."""
    path = tmp_path / "done"
    ended = run_program(
        "import pathlib, time\n"
        "from scaler_exec import Client\n"
        "def touch(path): time.sleep(0.2); pathlib.Path(path).touch()\n"
        f"client = Client({cluster.get_address()!r})\n"
        f"client.submit(touch, {str(path)!r})\n"
    )

    assert (ended.stderr, ended.returncode, path.exists()) == ("", 0, True)


def test_submitting_after_the_end_is_refused() -> None:
    """An atexit handler that submits too late gets RuntimeError, and the program ends."""
    ended = run_program(
        "import atexit\n"
        "def late():\n"
        "    try: executor.submit(abs, 1)\n"
        "    except RuntimeError as error: print(error)\n"
        "atexit.register(late)\n"
        "from scaler_exec import ScalerExecutor\n"
        "executor = ScalerExecutor(1)\n"
        "executor.submit(abs, 1).result()\n"
    )

    assert "after interpreter shutdown" in ended.stdout
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_what_a_program_does_at_its_exit_may_still_submit() -> None:
    """An atexit handler made after the import, though before the executor, can submit."""
    ended = run_program(
        "import atexit, scaler_exec\n"
        "atexit.register(lambda: print(executor.submit(abs, -1).result()))\n"
        "executor = scaler_exec.ScalerExecutor(1)\n"
    )

    assert (ended.stdout, ended.stderr, ended.returncode) == ("1\n", "", 0)


def test_a_program_may_be_ended_in_the_middle() -> None:
    """os._exit in the client takes the whole cluster with it."""
    ended = run_program(
        "import os, time\n"
        "from scaler_exec import ScalerExecutor\n"
        "executor = ScalerExecutor(2)\n"
        "executor.submit(abs, 1).result()\n"
        "executor.submit(time.sleep, 1000)\n"
        "os._exit(5)\n"
    )

    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 5)


def test_what_tasks_write_to_stderr_comes_to_ours() -> None:
    """A worker's stderr is passed on to the program's, whole, also at its very end."""
    ended = run_program(
        "import sys\n"
        "from scaler_exec import ScalerExecutor\n"
        "def write(text): sys.stderr.write(text)\n"
        "executor = ScalerExecutor(1)\n"
        "executor.submit(write, 'first\\n').result()\n"
        "executor.submit(write, 'x' * 200_000 + '\\nlast\\n').result()\n"
    )

    assert ended.stderr == "first\n" + "x" * 200_000 + "\nlast\n"


def test_a_stderr_that_nobody_reads_holds_nobody_up(start_program) -> None:
    """With a full stderr the supervisor still kills and replaces workers."""
    program = start_program(
        "import sys\n"
        "from scaler_exec import ScalerExecutor\n"
        "from tests.runtime import tasks\n"
        "def write(n): sys.stderr.write('x' * n)\n"
        "executor = ScalerExecutor(1)\n"
        "executor.submit(write, 1_000_000).result()\n"
        "print(repr(executor.submit(tasks.fail, 'os_exit').exception())[:15], flush=True)\n"
        "print(executor.submit(abs, -3).result(), flush=True)\n"
    )

    assert [program.line(), program.line()] == ["WorkerDiedError", "3"]
    # A program that is killed while it ends may leave its directories to the next one.
    assert program.process.wait(BOUND_S) == 0


# -- signals -------------------------------------------------------------------------------------

WAITING = {
    "result": "executor.submit(tasks.sleep, path).result()",
    "map": "list(executor.map(tasks.sleep, [path, path + '2']))",
    "wait": "concurrent.futures.wait([executor.submit(tasks.sleep, path)])",
    "stubborn": "executor.submit(tasks.refuse_to_stop, path).result()",
    "exit": "executor.submit(tasks.sleep, path)",
}


@pytest.mark.parametrize("waiting", ["result", "map", "wait", "stubborn"])
def test_control_c_ends_the_wait(start_program, flags, waiting) -> None:
    """SIGINT while the client waits is a KeyboardInterrupt there, and nothing is left."""
    program = start_program(
        "import concurrent.futures, signal, sys\n"
        "from scaler_exec import ScalerExecutor\n"
        "from tests.runtime import tasks\n"
        f"path = {flags.path('started')!r}\n"
        "executor = ScalerExecutor(2)\n"
        "try:\n"
        f"    {WAITING[waiting]}\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "    executor.kill_workers()\n"
    )
    worker = flags.wait("started")
    program.process.send_signal(signal.SIGINT)

    assert program.line() == "interrupted"
    code, _, err = program.end()
    assert (code, err) == (0, "")
    wait_gone(worker)


@pytest.mark.parametrize("waiting", ["result", "map", "wait", "exit"])
@pytest.mark.parametrize(
    "block", ["if executor := ScalerExecutor(2)", "with ScalerExecutor(2) as executor"]
)
def test_control_c_that_nobody_catches_ends_the_program(
    start_program, flags, waiting, block
) -> None:
    """An uncaught KeyboardInterrupt ends the program, its tasks and its processes, at once."""
    program = start_program(
        "import concurrent.futures\n"
        "from scaler_exec import ScalerExecutor\n"
        "from tests.runtime import tasks\n"
        f"path = {flags.path('started')!r}\n"
        f"{block}:\n"
        f"    {WAITING[waiting]}\n"
    )
    flags.wait("started")
    below = program.children()
    # As a terminal does: to the whole foreground group.
    os.killpg(program.pid, signal.SIGINT)
    code, _, err = program.end()

    assert "KeyboardInterrupt" in err
    # Once the interpreter has begun to exit, its status stands.
    assert code == (0 if (waiting, block[:2]) == ("exit", "if") else -signal.SIGINT)
    wait_gone(*below)


def test_the_executor_goes_on_after_control_c(start_program, flags) -> None:
    """After a KeyboardInterrupt in result() the executor can be used."""
    program = start_program(
        "from scaler_exec import ScalerExecutor\n"
        "from tests.runtime import tasks\n"
        "executor = ScalerExecutor(2)\n"
        f"future = executor.submit(tasks.sleep, {flags.path('started')!r})\n"
        "try:\n"
        "    future.result()\n"
        "except KeyboardInterrupt:\n"
        "    print(future.cancel(), executor.submit(abs, -3).result(), flush=True)\n"
        "    print(list(executor.map(abs, range(3))), flush=True)\n"
    )
    flags.wait("started")
    program.process.send_signal(signal.SIGINT)

    assert program.end() == (0, "True 3\n[0, 1, 2]\n", "")


@pytest.mark.parametrize(
    "work",
    [
        "sum(1 for _ in executor.map(abs, range(10**9), buffersize=5000))",
        "for n in range(10**9): executor.submit(abs, n)",
        "for n in range(10**9): executor.submit(abs, n).result()",
        "list(executor.map(abs, itertools.count()))",
    ],
)
def test_control_c_in_the_middle_of_much_work(start_program, work) -> None:
    """SIGINT at any point of the client's code hangs nothing, and loses no result."""
    program = start_program(
        "import itertools\n"
        "from scaler_exec import ScalerExecutor\n"
        "executor = ScalerExecutor(2)\n"
        # The first map imports a module, in a callback of which Python itself drops an interrupt.
        "list(executor.map(abs, ()))\n"
        "for round in range(5):\n"
        "    try:\n"
        "        print('ready', executor.submit(abs, -round).result(), flush=True)\n"
        f"        {work}\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', flush=True)\n"
        "print(list(executor.map(abs, range(-2000, 0))) == list(range(2000, 0, -1)))\n"
        "futures = [executor.submit(abs, n) for n in range(-2000, 0)]\n"
        "print([f.result() for f in futures] == list(range(2000, 0, -1)))\n"
        "executor.kill_workers()\n"
    )
    for n in range(5):
        assert program.line() == f"ready {n}"
        program.process.send_signal(signal.SIGINT)
        assert program.line() == "interrupted"

    assert program.end() == (0, "True\nTrue\n", "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_client_that_is_killed_leaves_nothing(start_program, flags, number) -> None:
    """Scheduler, supervisor, workers and tasks end when their client dies by a signal."""
    program = start_program(
        "import signal\n"
        # Whoever runs the tests under nohup has it ignored.
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "from scaler_exec import ScalerExecutor\n"
        "from tests.runtime import tasks\n"
        "executor = ScalerExecutor(2)\n"
        f"executor.submit(tasks.refuse_to_stop_with_child, {flags.path('child')!r})\n"
        f"executor.submit(tasks.spin_in_c, {flags.path('spin')!r}).result()\n"
    )
    child = flags.wait("child")
    spinner = flags.wait("spin")
    below = program.children()
    os.kill(program.pid, number)

    assert program.end()[0] == -number
    assert len(below) >= 5
    wait_gone(child, spinner, *below)


@pytest.mark.parametrize("children", [1, 2, 3, 4])
def test_a_client_that_is_killed_while_it_starts_leaves_nothing(start_program, children) -> None:
    """A client that is killed at any point of its start leaves no process, and no output."""
    program = start_program(
        "import time\nfrom scaler_exec import ScalerExecutor\nexecutor = ScalerExecutor(2)\ntime.sleep(1000)\n"
    )
    wait_until(lambda: len(program.children()) >= children, "nothing is started")
    below = program.children()
    os.kill(program.pid, signal.SIGKILL)

    assert program.end() == (-signal.SIGKILL, "", "")
    wait_gone(*below)


def test_a_forked_child_of_the_client_does_not_keep_the_cluster_alive(start_program, flags) -> None:
    """When the client is killed its cluster ends, though a forked child of the client lives."""
    program = start_program(
        "import os, time, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from scaler_exec import ScalerExecutor\n"
        "executor = ScalerExecutor(1)\n"
        "worker = executor.submit(os.getpid).result()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    time.sleep(1000)\n"
        "print(worker, child, flush=True)\n"
        "time.sleep(1000)\n"
    )
    worker, child = map(int, program.line().split())
    below = [pid for pid in program.children() if pid != child]
    try:
        os.kill(program.pid, signal.SIGKILL)
        wait_gone(worker, *below)
    finally:
        os.kill(child, signal.SIGKILL)
