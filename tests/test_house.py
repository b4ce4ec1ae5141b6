"""The house stands as it was drawn: arrows point down, the core is pure, the configs agree."""

from __future__ import annotations

import ast
import configparser
import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HOUSE = Path(__file__).parents[1]
CONFIG = tomllib.loads((HOUSE / "pyproject.toml").read_text())
WHEEL = CONFIG["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
ROOTS = sorted({str(Path(package).parent) for package in WHEEL})
NO_PRODUCT = ("benchmarks", "docs", "examples", "tests")

FLOORS = (
    # From the top down. Rooms of one floor know nothing of each other.
    ("scaler_exec", "scaler"),
    ("scaler_compat", "scaler_monitoring"),
    ("scaler_cluster.cli",),
    ("scaler_cluster.combo", "scaler_cluster.client", "scaler_cluster.testing"),
    ("scaler_cluster.runtime",),
    # What a session fills with results. The client that users hold lives above it.
    ("scaler_cluster.client.map", "scaler_cluster.client.graph", "scaler_cluster.client.packing"),
    ("scaler_cluster.client.future",),
    (
        "scaler_cluster.objects",
        "scaler_cluster.nodes",
        "scaler_cluster.exceptions",
        "scaler_cluster.function_pickler",
    ),
    ("scaler_cluster.core", "scaler_cluster.links", "scaler_cluster.payload"),
    (
        "scaler_cluster.config",
        "scaler_cluster.unpicklable",
        "scaler_cluster.function_cache",
        "scaler_cluster.reloads",
    ),
    ("scaler_cluster.arguments", "scaler_cluster.by_value"),
    (
        "scaler_cluster.preload",
        "scaler_cluster.logs",
        "scaler_cluster.wire",
        "scaler_cluster.texts",
    ),
    ("scaler_cluster.errors", "scaler_cluster.ids"),
    ("scaler_cluster",),
)
FLOOR = {room: height for height, rooms in enumerate(reversed(FLOORS)) for room in rooms}
OURS = {room.partition(".")[0] for room in FLOOR}

PURE = ("scaler_cluster.core", "scaler_cluster.wire")
IMPURE = {"asyncio", "multiprocessing", "os", "random", "socket", "threading", "time", "zmq"}
IMPURE |= {"secrets", "select", "selectors", "signal", "subprocess"}  # the same by other names


def find_modules() -> dict[str, Path]:
    """Return every module of the product with its file."""
    modules = {}
    for package in WHEEL:
        root = HOUSE / Path(package).parent
        for file in sorted((HOUSE / package).rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return modules


MODULES = find_modules()


def imports(node: ast.AST, *, types: bool) -> Iterator[str]:
    """Yield the dotted names imported anywhere below, those for the type checker if asked for."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        assert node.module is not None
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING") and not types:
        children = node.orelse
    for child in children:
        yield from imports(child, types=types)


@functools.cache
def imports_of(module: str, *, types: bool) -> list[str]:
    return list(imports(ast.parse(MODULES[module].read_text()), types=types))


def room_of(name: str) -> str:
    """Return the innermost room that a dotted name lies in."""
    while name not in FLOOR:
        name, dot, _ = name.rpartition(".")
        assert dot, "give the new room its floor in FLOORS"
    return name


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_imports_alone(module, tmp_path):
    """A module can be the first one that a fresh interpreter imports; nothing warns or prints."""
    path = os.pathsep.join(str(HOUSE / root) for root in ROOTS)

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import {module}"],
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("module", MODULES)
def test_arrows_point_down(module):
    """A module imports from its own room and from floors below it, never beside or above."""
    room = room_of(module)
    ours = [name for name in imports_of(module, types=False) if name.partition(".")[0] in OURS]

    wrong = [name for name in ours if room_of(name) != room and FLOOR[room_of(name)] >= FLOOR[room]]

    assert [] == wrong


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name) in PURE])
def test_core_is_pure(module):
    """The core and the wire format import nothing that waits, sends, rolls dice or reads clocks."""
    found = {name.partition(".")[0] for name in imports_of(module, types=True)}

    assert set() == found & IMPURE


def test_only_links_know_the_transport():
    """ZeroMQ is imported by the links and by nothing else."""
    users = {
        room_of(module)
        for module in MODULES
        if any(name.partition(".")[0] == "zmq" for name in imports_of(module, types=True))
    }

    assert {"scaler_cluster.links"} == users


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
