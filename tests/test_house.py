"""The house stands as it was drawn: arrows point down, no circles, the core is pure, pieces are small."""

from __future__ import annotations

import ast
import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LONGEST
from tests.house import (
    CONFIG,
    HOUSE,
    ROOTS,
    WHEEL,
    circle,
    find_modules,
    import_graph,
    innermost,
    names_imported,
    pieces_of,
    upward_arrows,
)

NO_PRODUCT = ("benchmarks", "docs", "examples", "tests")
MODULES = find_modules()
SOURCES = {module: file.read_text() for module, file in MODULES.items()}

FLOORS = (
    # From the top down. Packages of one floor know nothing of each other.
    ("scaler_exec", "scaler"),
    ("scaler_compat", "scaler_monitoring"),
    ("scaler_cluster.cli",),
    ("scaler_cluster.combo", "scaler_cluster.testing"),
    ("scaler_cluster.runtime",),
    ("scaler_cluster.provision",),
    ("scaler_cluster.client",),
    ("scaler_cluster.process",),
    ("scaler_cluster.objects",),
    ("scaler_cluster.security",),
    ("scaler_cluster.pickling", "scaler_cluster.links"),
    ("scaler_cluster.core.scheduler", "scaler_cluster.core.worker"),
    ("scaler_cluster.core.client", "scaler_cluster.core.graph", "scaler_cluster.core.supervisor"),
    ("scaler_cluster.core.manager",),
    ("scaler_cluster.core.records", "scaler_cluster.core.delivery", "scaler_cluster.core.storage"),
    ("scaler_cluster.core", "scaler_cluster.config"),
    ("scaler_cluster.arguments", "scaler_cluster.preload", "scaler_cluster.logs"),
    ("scaler_cluster.wire", "scaler_cluster.texts", "scaler_cluster.call_tree"),
    ("scaler_cluster.errors", "scaler_cluster.ids", "scaler_cluster.users"),
    ("scaler_cluster",),
)
ROOMS = {room for rooms in FLOORS for room in rooms}

TOO_BIG = {
    "scaler_cluster.wire.messages": "one class for each message: read by looking one up",
    "scaler_cluster.wire.feed": "one class for each record of the feed: read by looking one up",
    "scaler_cluster.client.client.Client": "the public API: half of it are its docstrings",
    "scaler_cluster.client.connection.Connection": (
        "a door of two lines for each thing that threads ask of the core: they share its lock"
    ),
    "scaler_cluster.client.session.Session": "the doors of Client and ScalerExecutor, two lines each",
    "scaler_cluster.core.worker.nested.NestedCore": (
        "a ClientCore that knows more: 20 of its methods are the client's, for tasks held here"
    ),
    "scaler_cluster.runtime.nested.NestedSession": "a Session that knows whose each task is",
}
"""What is bigger than a file, class or function should be, and why it stays so."""

PURE = ("scaler_cluster.core", "scaler_cluster.wire")
IMPURE = {"asyncio", "multiprocessing", "os", "random", "socket", "threading", "time", "zmq"}
IMPURE |= {"secrets", "select", "selectors", "signal", "subprocess"}  # the same by other names


@pytest.mark.slow
def test_all_modules_can_be_imported(tmp_path):
    """Nothing warns or prints. In which order makes no difference, as none go in a circle."""
    path = os.pathsep.join(str(HOUSE / root) for root in ROOTS)

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import {', '.join(sorted(MODULES))}"],
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_no_import_goes_in_a_circle():
    """No module imports itself around others: for types, inside of functions or at once."""
    assert [] == circle(import_graph(SOURCES))


def test_arrows_point_down():
    """A module imports from its own package and from floors below it, never beside or above."""
    homeless = [module for module in MODULES if not innermost(module, ROOMS)]

    assert [] == homeless, "give each new package its floor in FLOORS"
    assert [] == upward_arrows(import_graph(SOURCES), FLOORS)


def test_a_circle_is_found():
    """Two modules that import each other inside of functions, with a third in between."""
    planted = {
        "a.one": "def f():\n    import a.two",
        "a.two": "from a.three import x",
        "a.three": "from a import one",
        "a.four": "import a.one",
        "a": "",
    }

    assert {"a.one", "a.three", "a.two"} == set(circle(import_graph(planted)))


def test_a_circle_of_types_is_found():
    """Two modules, of which one imports the other for the type checker alone."""
    planted = {
        "a.one": "import typing\nif typing.TYPE_CHECKING:\n    from a.two import Two",
        "a.two": "from a.one import One",
    }

    assert {"a.one", "a.two"} == set(circle(import_graph(planted)))


def test_an_arrow_upward_is_found():
    """An import from a higher floor, or from beside, though it makes no circle."""
    floors = ("top",), ("left", "right"), ("ground",)
    planted = {
        "top.a": "import left.a, ground.a",
        "left.a": "import ground.a",
        "right.a": "def f():\n    from left import a",
        "ground.a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import top.a",
    }

    wrong = upward_arrows(import_graph(planted), floors)

    assert [("right.a", "left.a"), ("ground.a", "top.a")] == wrong


def test_a_reader_holds_each_piece_in_the_head():
    """Files, classes and functions are small, but for those that have a reason."""
    pieces = [piece for module, text in SOURCES.items() for piece in pieces_of(module, text)]
    big = {piece.name for piece in pieces if piece.is_big}

    assert set() == big - TOO_BIG.keys(), "split it along what it does, or give a reason"
    assert set() == TOO_BIG.keys() - big, "its reason is not needed any more"


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith(PURE)])
def test_core_is_pure(module):
    """The core and the wire format import nothing that waits, sends, rolls dice or reads clocks."""
    found = {name.partition(".")[0] for name in names_imported(ast.parse(SOURCES[module]))}

    assert set() == found & IMPURE


def test_only_links_know_the_transport():
    """ZeroMQ is imported by the links and by nothing else."""
    users = {
        innermost(module, ROOMS)
        for module, text in SOURCES.items()
        if any(name.partition(".")[0] == "zmq" for name in names_imported(ast.parse(text)))
    }

    assert {"scaler_cluster.links"} == users


def test_the_longest_files_are_there():
    """Each file that CI begins with exists: one that was renamed would run alone at the end."""
    assert [name for name in LONGEST if not (HOUSE / "tests" / name).is_file()] == []


def test_configs_name_the_same_roots():
    """Hatch, mypy, pyright and ruff name the same source roots: those of the wheel's packages."""
    tools = CONFIG["tool"]
    mypy = tools["mypy"]["mypy_path"].replace("$MYPY_CONFIG_FILE_DIR", ".").split(":")

    assert ROOTS == sorted(tools["hatch"]["build"]["dev-mode-dirs"])
    assert ROOTS == sorted(str(Path(root)) for root in mypy)
    assert ROOTS == sorted([".", *tools["pyright"]["extraPaths"]])
    assert ROOTS == sorted(tools["ruff"]["src"])


def test_wheel_has_every_package():
    """Every import package in a source root is in the wheel, with its mark that it is typed."""
    found = {
        str(marker.parent.relative_to(HOUSE))
        for root in ROOTS
        for marker in (HOUSE / root).glob("*/__init__.py")
        if marker.parent.name not in NO_PRODUCT
    }

    assert sorted(found) == sorted(WHEEL)
    assert [] == [package for package in WHEEL if not (HOUSE / package / "py.typed").exists()]


def test_oldest_python_is_one():
    """The package, its classifiers, ruff and tox mean the same oldest Python."""
    tox = configparser.ConfigParser()
    tox.read(HOUSE / "tox.ini")
    oldest = CONFIG["project"]["requires-python"].removeprefix(">=")
    short = "py" + oldest.replace(".", "")

    assert short == CONFIG["tool"]["ruff"]["target-version"]
    assert short in tox["tox"]["env_list"]
    assert f"Programming Language :: Python :: {oldest}" in CONFIG["project"]["classifiers"]


def test_ci_runs_what_the_readme_says():
    """The README has one line that runs all tests, and CI takes its command from there."""
    lines = [line for line in (HOUSE / "README.md").read_text().splitlines() if "/tox" in line]

    assert 1 == len(lines)
    assert "README.md" in (HOUSE / ".ci" / "run").read_text()


TIME_OF_DAY = re.compile(
    r"\btime\.time|\bfrom time import [^\n]*\btime(_ns)?\b|date(time)?\.(utcnow|now|today)\b"
)
"""What asks for the time of day, which jumps when somebody sets the clock."""


def test_no_clock_that_jumps():
    """No process of the engine measures with the time of day, which only the feed's times are."""
    asking = {
        module
        for module, text in SOURCES.items()
        if module.startswith(("scaler_cluster.", "scaler_exec")) and TIME_OF_DAY.search(text)
    }

    assert asking == {"scaler_cluster.runtime.feed_encoder"}
