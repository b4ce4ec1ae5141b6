"""What the house is made of: its modules, what they import, and how big everything is.

``python -m tests.house`` prints the figures.
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

HOUSE = Path(__file__).parents[1]
CONFIG = tomllib.loads((HOUSE / "pyproject.toml").read_text())
WHEEL = CONFIG["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
ROOTS = sorted({str(Path(package).parent) for package in WHEEL})

LINES_MAX = {"file": 499, "class": 349, "function": 70}
METHODS_MAX = 25


# -- imports -------------------------------------------------------------------------------------


def find_modules() -> dict[str, Path]:
    """Return every module of the product with its file."""
    modules = {}
    for package in WHEEL:
        root = HOUSE / Path(package).parent
        for file in sorted((HOUSE / package).rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return modules


def names_imported(tree: ast.AST) -> Iterator[str]:
    """Yield each dotted name that code imports: at once, inside functions, and for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def innermost(name: str, known: Collection[str]) -> str:
    """Return the longest beginning of a dotted name that is known; empty: there is none."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return which of these modules each of them imports, from their source code."""
    graph = {}
    for module, source in sources.items():
        found = {innermost(name, sources) for name in names_imported(ast.parse(source))}
        graph[module] = found - {"", module}
    return graph


def circle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Return modules that import each other around, each the next one; empty: there are none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        found: list[str] = error.args[1]
        return found[:0:-1]
    return []


def upward_arrows(
    graph: Mapping[str, Collection[str]], floors: Iterable[Iterable[str]]
) -> list[tuple[str, str]]:
    """Return the imports from a package of the same floor or one above; floors go top down."""
    heights = {room: -depth for depth, rooms in enumerate(floors) for room in rooms}
    wrong = []
    for module, others in graph.items():
        room = innermost(module, heights)
        for other in sorted(others):
            its = innermost(other, heights)
            if its != room and heights[its] >= heights[room]:
                wrong.append((module, other))
    return wrong


# -- sizes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """A file, class or function, and how big it is."""

    kind: str
    name: str
    lines: int
    methods: int = 0

    @property
    def is_big(self) -> bool:
        """Return True if a reader may not hold it in the head."""
        return self.lines > LINES_MAX[self.kind] or self.methods > METHODS_MAX


def pieces_of(module: str, source: str) -> Iterator[Piece]:
    """Yield a module, its classes and its functions."""
    yield Piece("file", module, source.count("\n"))
    stack: list[tuple[str, ast.AST]] = [(module, ast.parse(source))]
    while stack:
        name, tree = stack.pop()
        for node in ast.iter_child_nodes(tree):
            inner = f"{name}.{node.name}" if hasattr(node, "name") and node.name else name
            stack.append((inner, node))
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if isinstance(node, ast.ClassDef):
                    methods = sum(
                        isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body
                    )
                    yield Piece("class", inner, lines, methods)
                else:
                    yield Piece("function", inner, lines)


def type_ignores(file: Path) -> int:
    """Return how many comments of a file tell the type checker to look away."""
    with file.open("rb") as stream:
        return sum(
            token.type == tokenize.COMMENT and "type: ignore" in token.string
            for token in tokenize.tokenize(stream.readline)
        )


def main() -> None:
    """Print the figures that ``CONTRIBUTING.md`` speaks of."""
    modules = find_modules()
    sources = {module: file.read_text() for module, file in modules.items()}
    pieces = [piece for module, text in sources.items() for piece in pieces_of(module, text)]
    ring = circle(import_graph(sources))
    untyped = sum(
        len(re.findall(r"settings: (?:dict|Mapping)\[str, Any\]", text))
        for text in sources.values()
    )
    lines = sum(text.count("\n") for text in sources.values())
    print(f"product: {len(modules)} files, {lines} lines")
    print(f"import circle: {' -> '.join(ring) or 'none'}")
    for kind in ("file", "class", "function"):
        some = sorted((piece for piece in pieces if piece.kind == kind), key=lambda p: -p.lines)
        big = [piece for piece in some if piece.is_big]
        print(f"{kind}: biggest {some[0].lines} lines ({some[0].name}), too big: {len(big)}")
        for piece in big:
            print(f"    {piece.name}: {piece.lines} lines, {piece.methods} methods")
    print(f"type: ignore: {sum(map(type_ignores, modules.values()))}")
    print(f"settings as dictionaries: {untyped}")


if __name__ == "__main__":
    main()
