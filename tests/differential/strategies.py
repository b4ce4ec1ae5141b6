"""Programs at random: they change what they have just passed, and pass it again."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.differential import errands
from tests.differential.values import make_values

CHANGED_BY = {
    "reads": ("global number", "global list"),
    "reads_arrays": ("global arrays", "global small array"),
    "reads_deeply": ("global number", "global list"),
    "calls_chosen": ("global function",),
    "reads_class": ("class attribute", "class list", "instance", "method"),
    "compares": ("instance",),
    "uses_tools": ("global number",),
    "kind_of": (),
    "gives_own": ("instance",),
    "fails_own": ("global number",),
    "has_default": ("default",),
    "has_keyword": ("keyword default",),
    "recoded": ("code",),
    "noted": ("function attribute",),
    "imports": ("global number",),
    "decorated": ("global number",),
    "bound": ("instance", "class attribute"),
    "bound of a child": ("instance", "class attribute"),
    "grow": ("instance",),
    "instance": ("instance",),
    "replaced": ("method",),
    "plain": ("global number",),
    "made": ("class attribute", "class list"),
    "partial": ("cells",),
    "partial of reads": ("argument of a partial", "global number"),
    "collect": ("argument of a partial",),
    "look up": ("table",),
    "get": ("table",),
    "closure": ("cells",),
    "outer": ("cells",),
    "lambda": ("global number", "global function"),
    "partial of a lambda": ("global number",),
    "shows": (),
    "same": (),
    "writes": (),
    "numpy": (),
    "builtin": (),
    "of a module": (),
}
"""Functions that take any values, and changes that they notice."""
KEEPING = ("grow", "instance", "collect", "writes")
"""Functions that change what they are given, or their own instance."""
VALUES = sorted(make_values(object))
NUMBERS = st.integers(1, 9)
LITERALS = {
    "fails": st.sampled_from(sorted(errands.FAILURES)),
    "gives": st.sampled_from(sorted(errands.RESULTS)),
    "sometimes_fails": NUMBERS,
    "fibonacci": NUMBERS,
    "exits": st.one_of(NUMBERS, st.none(), st.text(max_size=3)),
    "prints": st.text(max_size=20).filter(str.isascii),
    "logs": st.text(max_size=20).filter(str.isascii),
    "forks": NUMBERS,
    "threads": NUMBERS,
}
"""Functions that take one of these."""


def _submit(function: str, arguments: list[list[Any]]) -> list[Any]:
    return ["submit", function, arguments]


def _literals() -> st.SearchStrategy[tuple[str, list[list[Any]]]]:
    """Return functions that take literals, each with some."""

    def of(function: str) -> st.SearchStrategy[tuple[str, list[list[Any]]]]:
        given = st.tuples(st.just("literal"), LITERALS[function]).map(list)
        return st.tuples(st.just(function), st.lists(given, min_size=1, max_size=6))

    return st.sampled_from(sorted(LITERALS)).flatmap(of)


def _map(function: str, source: list[Any], chunksize: int, buffersize: int | None) -> list[Any]:
    options: dict[str, Any] = {"chunksize": 1 if function in KEEPING else chunksize}
    if source[0] == "reuse":
        # What a chunk takes is pickled together.
        options["chunksize"] = 1
    if buffersize is not None:
        options["buffersize"] = buffersize
    return ["map", function, source, options]


@st.composite
def programs(draw: st.DrawFn) -> list[list[Any]]:
    """Return a program about two values and two functions, and errands in between."""
    values = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True))
    functions = draw(st.lists(st.sampled_from(sorted(CHANGED_BY)), min_size=1, max_size=2))
    changes = [change for function in functions for change in CHANGED_BY[function]]

    value, function = st.sampled_from(values), st.sampled_from(functions)
    argument = st.tuples(st.just("value"), value).map(list)
    arguments = st.lists(argument, min_size=1, max_size=2)
    source = st.one_of(
        st.tuples(st.just("list"), st.lists(argument, max_size=4)).map(list),
        st.tuples(st.just("repeat"), argument, st.integers(1, 5)).map(list),
        st.tuples(st.just("reuse"), value, st.integers(1, 5)).map(list),
    )
    sizes = st.integers(1, 3), st.none() | st.integers(1, 3)
    submit = st.builds(_submit, function, arguments)
    change = st.tuples(st.just("change"), st.sampled_from(values + changes), NUMBERS).map(list)
    step = st.one_of(
        submit,
        submit,
        change,
        change,
        st.builds(_map, function, source, *sizes),
        _literals().map(lambda given: _submit(given[0], given[1][:1])),
        st.builds(lambda given, *s: _map(given[0], ["list", given[1]], *s), _literals(), *sizes),
        st.just(["settle"]),
    )
    return draw(st.lists(step, min_size=3, max_size=9))
