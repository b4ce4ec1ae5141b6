"""Break the core in one place at a time, and see whether its quick tests notice.

    python tests/mutate.py --per-module 12 core/scheduler/queue.py core/worker

Each mutant differs from the product in one comparison, operator, constant, condition, return value
or statement. Tests that call the function in which it lies are run, the shortest first, up to the
first that fails, and then all that are marked slow. A mutant that no test notices is printed: either a test is missing, or the
mutant does the same as the product. The script works on a copy, uses one CPU, and is no part of the
suite; Ctrl-C ends it with the score so far.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis.stateful  # noqa: F401 - loaded once, for all mutants
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
PRODUCT = ROOT / "cluster"
ARGUMENTS = (
    "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
    "--hypothesis-seed=0",
)  # fmt: skip
QUICK_S = 60.0
"""A mutant whose tests take more CPU time than this, and four times as much as usual, hangs."""
SLOW_S = 300.0
"""The same for all slow tests together."""
OK, NO_TESTS = int(pytest.ExitCode.OK), int(pytest.ExitCode.NO_TESTS_COLLECTED)
OTHER_COMPARISON = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OTHER_OPERATOR = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.Pow: ast.Mult,
}  # fmt: skip


class Mutant:
    """A module in which one place differs from the product."""

    def __init__(self, path: Path, scope: int, old: ast.AST, new: ast.AST, whole: str) -> None:
        self.path = path
        self.scope = scope
        """The first line of the innermost function that it lies in; 0: it lies in none."""
        self.line = old.lineno  # type: ignore[attr-defined]
        self.old, self.new = ast.unparse(old), ast.unparse(new)
        self.whole = whole

    def __str__(self) -> str:
        where = self.path.relative_to(PRODUCT / "scaler_cluster")
        return f"{where}:{self.line}: `{self.old}` -> `{self.new}`"


# -- what is changed -----------------------------------------------------------------------------


def others(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in the place of a node."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            other = copy.deepcopy(node)
            other.ops[place] = OTHER_COMPARISON[type(operator)]()
            yield other
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in OTHER_OPERATOR:
        if is_of_types(node):
            return
        other_operation = copy.deepcopy(node)
        other_operation.op = OTHER_OPERATOR[type(node.op)]()
        yield other_operation
    elif isinstance(node, ast.BoolOp):
        other_bool = copy.deepcopy(node)
        other_bool.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield other_bool
        for place in range(len(node.values)):
            rest = node.values[:place] + node.values[place + 1 :]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
        value = node.value
        yield ast.Constant(not value if type(value) is bool else value + 1)
    elif isinstance(node, ast.Return) and node.value is not None and not is_none(node.value):
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()
    elif isinstance(node, (ast.If, ast.While)) and isinstance(
        node.test, (ast.Name, ast.Attribute, ast.Call)
    ):
        other_branch = copy.deepcopy(node)
        other_branch.test = ast.UnaryOp(ast.Not(), node.test)
        yield other_branch
    elif isinstance(node, ast.Continue):
        yield ast.Break()


def is_none(node: ast.AST) -> bool:
    """Return True for a None that is written down."""
    return isinstance(node, ast.Constant) and node.value is None


def is_of_types(node: ast.AST) -> bool:
    """Return True for a union of types, as ``m.Results | m.Failed``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return is_of_types(node.left) and is_of_types(node.right)
    return is_none(node) or (
        isinstance(node, (ast.Name, ast.Attribute))
        and ast.unparse(node).rpartition(".")[2][0].isupper()
    )


def places(node: ast.AST, scope: int = 0) -> Iterator[tuple[ast.AST, str, int | None, int]]:
    """Yield each place below a node, as its parent, field and index, with the function's line.

    Types are left out, and errors that are raised: their texts are for people.
    """
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or isinstance(child, (ast.Raise, ast.JoinedStr)):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            yield node, field, index if isinstance(value, list) else None, scope
            below = scope
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                below = min([child.lineno, *(one.lineno for one in child.decorator_list)])
            yield from places(child, below)


def mutants(path: Path) -> list[Mutant]:
    """Return all mutants of a module."""
    tree = ast.parse(path.read_text())
    found = []
    for parent, field, index, scope in list(places(tree)):
        siblings = getattr(parent, field)
        old = siblings if index is None else siblings[index]
        for new in others(old):
            ast.copy_location(new, old)
            if index is None:
                setattr(parent, field, new)
            else:
                siblings[index] = new
            whole = ast.unparse(ast.fix_missing_locations(tree))
            first = old if not isinstance(old, (ast.If, ast.While)) else old.test
            shown = new if not isinstance(new, (ast.If, ast.While)) else new.test
            found.append(Mutant(path, scope, first, shown, whole))
            if index is None:
                setattr(parent, field, old)
            else:
                siblings[index] = old
    return found


# -- which tests are run -------------------------------------------------------------------------


class Survey:
    """Notes of each test how long it took, and which functions of the product it called."""

    def __init__(self, product: str) -> None:
        self._product = product
        self.tests: dict[str, tuple[float, list[str]]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        called: set[Any] = set()

        def note(frame: Any, event: str, _: Any) -> None:
            if event == "call":
                called.add(frame.f_code)

        began = time.process_time()
        sys.setprofile(note)
        yield
        sys.setprofile(None)
        functions = {
            f"{code.co_filename.removeprefix(self._product)}:{code.co_firstlineno}"
            for code in called
            if code.co_filename.startswith(self._product)
        }
        self.tests[item.nodeid] = time.process_time() - began, sorted(functions)


class Chosen:
    """Runs some of the tests, in this order."""

    def __init__(self, names: list[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [one for one in items if one.nodeid in self._places]
        items.sort(key=lambda one: self._places[one.nodeid])


def forked(work: Callable[[], int], cpu_s: float) -> int | None:
    """Run something in a child process in silence; return its status, None if it took too long.

    What counts is its CPU time, as others use the machine as well; a child that rests for ever is
    given up after ten times as long.
    """
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 1))
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            status = work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    deadline = time.monotonic() + 10 * cpu_s
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


class Bench:
    """A copy of the product, and what the tests call of it."""

    def __init__(self, directory: str, tests: list[str], *, is_quick: bool) -> None:
        self._copy = Path(directory) / "cluster"
        self._tests = tests
        self._is_quick = is_quick
        shutil.copytree(PRODUCT, self._copy, ignore=shutil.ignore_patterns("__pycache__"))
        notes = Path(directory) / "survey.json"

        def survey() -> int:
            watcher = Survey(f"{self._copy}/")
            status = self._pytest("not slow", tests, watcher)
            notes.write_text(json.dumps(watcher.tests))
            return status

        status = forked(survey, 3600.0)
        assert status == OK, f"the tests fail as it is: {status}"
        self.tests: dict[str, tuple[float, list[str]]] = json.loads(notes.read_text())

    def _pytest(self, marked: str, tests: list[str], *plugins: object) -> int:
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(self._copy))
        os.chdir(ROOT)
        return int(pytest.main([*ARGUMENTS, "-m", marked, *tests], plugins))

    def is_noticed(self, mutant: Mutant) -> bool:
        """Return True if some test fails, or does not end, with this mutant."""
        where = mutant.path.relative_to(PRODUCT)
        function = f"{where}:{mutant.scope}"
        some = {
            name: took
            for name, (took, called) in self.tests.items()
            if function in called
            or (not mutant.scope and any(one.startswith(f"{where}:") for one in called))
        }
        path = self._copy / where
        original = path.read_text()
        path.write_text(mutant.whole)
        try:
            order = sorted(some, key=lambda name: some[name])
            limit_s = max(QUICK_S, 4 * sum(some.values()))
            files = sorted({name.partition("::")[0] for name in order})
            quick = partial(self._pytest, "not slow", files, Chosen(order))
            if order and forked(quick, limit_s) != OK:
                return True
            slow = partial(self._pytest, "slow", self._tests)
            return not self._is_quick and forked(slow, SLOW_S) not in (OK, NO_TESTS)
        finally:
            path.write_text(original)


def main() -> None:
    """Mutate the modules that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=["core"], help="below scaler_cluster")
    parser.add_argument("--tests", nargs="*", default=["tests/core"])
    parser.add_argument("--quick", action="store_true", help="leave slow tests out")
    parser.add_argument("--per-module", type=int, default=10, help="mutants; 0: all of them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no mutant after this")
    given = parser.parse_args()
    os.nice(15)
    sys.path.remove(str(Path(__file__).parent))  # The folder tests/typing is none of Python's.
    deadline = time.monotonic() + 60 * given.minutes
    paths: list[Path] = []
    for name in given.modules:
        place = PRODUCT / "scaler_cluster" / name
        paths += sorted(place.rglob("*.py")) if place.is_dir() else [place]
    score: dict[Path, list[bool]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(directory, given.tests, is_quick=given.quick)
        print(f"{len(bench.tests)} tests pass as it is", flush=True)
        chosen = []
        for path in paths:
            found = mutants(path)
            dice = random.Random(f"{given.seed} {path.name}")
            dice.shuffle(found)
            chosen.append(found[: given.per_module or None])
        # One of each module in turn, so that a run that is cut off has seen all of them.
        turns = [one for turn in zip_longest(*chosen) for one in turn if one is not None]
        with contextlib.suppress(KeyboardInterrupt):
            for mutant in turns:
                if time.monotonic() > deadline:
                    break
                noticed = bench.is_noticed(mutant)
                score[mutant.path].append(noticed)
                if not noticed:
                    print(f"SURVIVED {mutant}", flush=True)
    for path, noticed_ones in sorted(score.items()):
        name = path.relative_to(PRODUCT / "scaler_cluster")
        print(f"{sum(noticed_ones):4} of {len(noticed_ones):4} noticed in {name}")
    everything = [one for some in score.values() for one in some]
    print(f"{sum(everything):4} of {len(everything):4} noticed in all")


if __name__ == "__main__":
    main()
