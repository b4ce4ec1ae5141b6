"""Whole programs: what they print and how they end; a notebook."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.runtime.helpers import BOUND_S, environment

POOL = """
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
def make(workers):
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"))
"""
OURS = """
from scaler_exec import ScalerExecutor as make
"""
PROGRAMS = {
    "output of tasks": """
        import logging, os, sys, threading, warnings
        def talk():
            print("printed", flush=True)
            print("printed to stderr", file=sys.stderr)
            os.write(1, b"written\\n")
            logging.error("logged")
            logging.getLogger("of.mine").warning("warned")
            logging.getLogger("of.mine").info("hidden")
            warnings.warn("careful", stacklevel=1)
        with make(1) as executor:
            executor.submit(talk).result()
        """,
    "logging is set up in a task": """
        import logging
        def talk(n):
            logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
            logging.getLogger("of.mine").info("task %d", n)
        with make(1) as executor:
            list(executor.map(talk, range(3)))
        """,
    "an end without shutdown": """
        import time
        def work(n):
            time.sleep(0.01)
            print("worked", n, flush=True)
        executor = make(1)
        for n in range(5):
            executor.submit(work, n)
        print("the end", flush=True) if executor.submit(int, 5).result() else None
        """,
    "an error of the program": """
        def fail(n):
            raise ValueError(n)
        with make(1) as executor:
            try:
                executor.submit(fail, 1).result()
            except ValueError as error:
                print("caught", error)
            executor.submit(print, "in between").result()
            raise SystemExit(7)
        """,
    "sys.exit in a task": """
        import sys
        with make(1) as executor:
            try:
                executor.submit(sys.exit, 3).result()
            except SystemExit as error:
                print("caught", error.code)
            print(executor.submit(int, 5).result())
        """,
    "a child that a task forked": """
        import os
        def fork():
            child = os.fork()
            if not child:
                print("in the child", flush=True)
                os._exit(0)
            return os.waitpid(child, 0)[1]
        with make(1) as executor:
            print(executor.submit(fork).result())
        """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_and_ends_alike(tmp_path, name) -> None:
    """A script prints the same to both streams on either executor, and ends with the same code."""
    ended = []
    script = tmp_path / "script.py"
    for start in (POOL, OURS):
        script.write_text(start + textwrap.dedent(PROGRAMS[name]).replace("\n\n", "\n"))
        done = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            # Workers have a thread, of which Python warns where a task forks: that is known.
            env=environment() | {"PYTHONWARNINGS": "ignore::DeprecationWarning"},
            timeout=2 * BOUND_S,
            check=False,
        )
        lines = [line for line in done.stderr.splitlines() if "script.py:" not in line]
        ended.append((done.stdout, lines, done.returncode))

    assert ended[0] == ended[1]
    assert ended[0][0] or ended[0][1]


NOTEBOOK = [
    "from scaler_exec import ScalerExecutor\nex = ScalerExecutor(2)",
    "K = 5\ndef f(n):\n    return K * n\nlist(ex.map(f, range(3)))",
    "K = 6; list(ex.map(f, range(3)))",
    (
        "import numpy as np\na = np.zeros(100_000)\nfutures = []\n"
        "for i in range(3):\n    futures.append(ex.submit(np.sum, a))\n    a += 1\n"
        "[float(future.result()) for future in futures]"
    ),
    (
        "class Box:\n    factor = 1\n    def times(self, n):\n        return self.factor * n * K\n"
        "box = Box()\nex.submit(box.times, 2).result()"
    ),
    "Box.factor = 10; K = 7; (ex.submit(box.times, 2).result(), box.times(2))",
    "def f(n):\n    return -n\nlist(ex.map(f, range(3)))",
    (
        "words = ['a']\nclosure = (lambda words: lambda: list(words))(words)\n"
        "first = ex.submit(closure)\nwords.append('b')\n(first.result(), ex.submit(closure).result())"
    ),
    "ex.shutdown()",
]
SHOWN = [
    None,
    "[0, 5, 10]",
    "[0, 6, 12]",
    "[0.0, 100000.0, 200000.0]",
    "12",
    "(140, 140)",
    "[0, -1, -2]",
    "(['a'], ['a', 'b'])",
    None,
]


@pytest.mark.filterwarnings("ignore")
def test_a_notebook_sees_its_cells_as_they_are(tmp_path) -> None:
    """A cell that is run again, and changes what functions and arrays are, counts at once."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    import nbformat

    cells = [nbformat.v4.new_code_cell(cell) for cell in NOTEBOOK]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(
        notebook,
        timeout=2 * BOUND_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )

    client.execute(env=environment() | {"IPYTHONDIR": str(tmp_path)})

    shown = [[one["data"]["text/plain"] for one in cell.outputs] for cell in notebook.cells]
    assert shown == [[text] if text else [] for text in SHOWN]
