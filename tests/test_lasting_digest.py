"""Digests of functions and values are the same in every process, and tell apart what differs."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pickle
import subprocess
import sys
import threading
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.client.lasting_digest import Digester, NoDigestError

ROOT = Path(__file__).parents[1]
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.dictionaries(st.text(), inner),
        st.frozensets(PLAIN),
    ),
    max_leaves=20,
)


_made: dict[str, object] = {"__name__": "__main__"}
exec("def relative():\n    from . import other\n    return other", _made)
relative = _made["relative"]


def nested(levels: int) -> list[object]:
    """Return lists within lists."""
    inner: list[object] = []
    for _ in range(levels):
        inner = [inner]
    return inner


PROGRAM = """
import collections, dataclasses, functools, json, sys
import numpy as np
from scaler_cluster.client.lasting_digest import Digester

FACTOR = 3
NAMES = {"one", "two", "three", "four"}

def helper(x): return x * FACTOR
def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)
@functools.lru_cache
def cached(x): return helper(x) if x in NAMES else even(x)
@dataclasses.dataclass
class Point:
    x: int = 1
    names: set = dataclasses.field(default_factory=set)
    def far(self): return helper(self.x)
def made(n):
    def inner(x): return x + n + cached(x) + Point().far()
    return inner
values = [made(1), Point(2, {"a", "b", "c"}), np.arange(5.0), NAMES, cached, Point(3).far,
          functools.partial(helper, 2), collections.Counter("abc"), json.dumps, np.add, len]
print(json.dumps([Digester().digest(one).hex() for one in values]))
"""


def digest(value: object) -> bytes:
    return Digester().digest(value)


def run(tmp_path: Path, source: str, seed: str, **modules: str) -> list[str]:
    """Return the digests that a program prints, in an interpreter with another hash seed."""
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    program = tmp_path / "program.py"
    program.write_text(source)
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory) -> list[str]:
    """Return the digests of the program as it is."""
    return run(tmp_path_factory.mktemp("unchanged"), PROGRAM, "1")


@given(VALUES)
def test_copies_have_one_digest(value) -> None:
    """A copy of a value, which shares nothing with it, has its digest."""
    assert digest(pickle.loads(pickle.dumps(value))) == digest(value)


@given(VALUES, VALUES)
def test_what_differs_is_told_apart(one, other) -> None:
    """Two values have one digest only if they are shown alike: 1, 1.0 and True are not."""

    def shown(value: object) -> str:
        if isinstance(value, frozenset):
            return "set" + str(sorted(map(shown, value)))
        if isinstance(value, list | tuple):
            return type(value).__name__ + str(list(map(shown, value)))
        if isinstance(value, dict):
            return "dict" + str([(shown(key), shown(each)) for key, each in value.items()])
        return repr(value)

    assert (digest(one) == digest(other)) == (shown(one) == shown(other))


def test_digests_are_the_same_in_other_processes(tmp_path, unchanged) -> None:
    """Functions, closures, classes, sets and arrays have one digest whatever the hash seed is."""
    assert run(tmp_path, "\n\n# moved\n" + PROGRAM, "2") == unchanged


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FACTOR = 3", "FACTOR = 4"),
        ("x * FACTOR", "FACTOR + x"),
        ("n != 0 and even(n - 1)", "n != 0 and even(n - 3)"),
        ('"four"', '"five"'),
        ("x + n +", "x - n +"),
        ("x: int = 1", "x: int = 2"),
    ],
)
def test_whatever_a_function_refers_to_counts(tmp_path, unchanged, before, after) -> None:
    """A helper, a global, a closure's function or a class that changes changes the digest."""
    assert before in PROGRAM

    assert run(tmp_path, PROGRAM.replace(before, after), "1")[0] != unchanged[0]


def test_modules_that_are_not_installed_count_with_what_they_import(tmp_path) -> None:
    """A change in a local module counts, also in one that it imports; a comment does not."""
    source = (
        "import json, near\nfrom scaler_cluster.client.lasting_digest import Digester\n"
        "print(json.dumps([Digester().digest(near.f).hex()]))"
    )
    near = "def f(x):\n    import far\n    return far.g(x)\n"
    first = run(tmp_path, source, "1", near=near, far="def g(x):\n    return x\n")

    assert run(tmp_path, source, "2", far="# more\ndef g(x):\n    return x\n") == first
    assert run(tmp_path, source, "1", far="def g(x):\n    return -x\n") != first


LOCAL = (
    "import json, sys\nsys.path[:0] = {paths!r}\nimport {name}\n"
    "from scaler_cluster.client.lasting_digest import Digester\n"
    "print(json.dumps([Digester().digest({name}.f).hex()]))"
)


def test_modules_in_archives_are_the_users_code(tmp_path) -> None:
    """A change of a module in a zip file counts, also of one that it imports; a comment does not."""
    archive = tmp_path / "code.zip"
    source = LOCAL.format(paths=[str(archive)], name="near")

    def digests(far: str) -> list[str]:
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("near.py", "def f(x):\n    import far\n    return far.g(x)\n")
            file.writestr("far.py", far)
        return run(tmp_path, source, "1")

    first = digests("def g(x):\n    return x\n")
    assert digests("# more\ndef g(x):\n    return x\n") == first
    assert digests("def g(x):\n    return -x\n") != first


def test_a_local_module_may_be_called_as_one_of_python(tmp_path) -> None:
    """What is found before the standard library's module is the user's code."""
    place = tmp_path / "own"
    place.mkdir()
    source = LOCAL.format(paths=[str(place)], name="this")
    own = place / "this.py"
    own.write_text("def f(x):\n    return x\n")
    first = run(tmp_path, source, "1")
    own.write_text("def f(x):\n    return -x\n")

    assert run(tmp_path, source, "1") != first


def test_imports_of_functions_with_many_names_count(tmp_path) -> None:
    """An import behind more than 256 names is seen as any other."""
    many = "".join(f"    x.a{n}\n" for n in range(300))
    source = (
        "import json\nfrom scaler_cluster.client.lasting_digest import Digester\n"
        f"def f(x):\n{many}    import far\n    from far import g\n    return g(x)\n"
        "print(json.dumps([Digester().digest(f).hex()]))"
    )
    first = run(tmp_path, source, "1", far="def g(x):\n    return x\n")

    assert run(tmp_path, source, "2", far="# more\ndef g(x):\n    return x\n") == first
    assert run(tmp_path, source, "1", far="def g(x):\n    return -x\n") != first


def test_structured_arrays_count_with_their_fields() -> None:
    """Arrays of the same bytes differ by the names, the places and the types of their fields."""
    fields = [
        [("a", "i4"), ("b", "i4")],
        [("a", "i4"), ("c", "i4")],
        [("a", "i4"), ("b", "f4")],
        {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [4, 0], "itemsize": 8},
        {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2], "itemsize": 8},
    ]
    made = [np.zeros(3, dtype) for dtype in fields]

    assert len({digest(one) for one in made}) == len(fields)
    assert [digest(one.copy()) for one in made] == [digest(one) for one in made]


def test_a_module_without_a_file_has_no_digest(monkeypatch) -> None:
    """Nobody can see whether the code of a module changed that was made by a program."""
    module = types.ModuleType("made_by_hand")
    exec("def f(x): return x", module.__dict__)
    monkeypatch.setitem(sys.modules, "made_by_hand", module)
    with pytest.raises(NoDigestError, match="made_by_hand has no file"):
        digest(module.f)


def test_arrays_count_with_content_type_shape_and_order() -> None:
    """Arrays differ by content, type, shape and order of memory, not by how they were cut."""
    array = np.arange(12.0).reshape(3, 4)
    alike = [array, array.copy(), np.arange(24.0).reshape(3, 8)[:, :4] * 0 + array]
    unlike = [array, array + 1, array.astype("f4"), array.reshape(4, 3), np.asfortranarray(array)]

    assert len(set(map(digest, alike))) == 1
    assert len(set(map(digest, unlike))) == len(unlike)
    assert digest(np.array([1, "a"], dtype=object)) != digest(np.array([1, "b"], dtype=object))


def test_what_contains_itself_has_a_digest() -> None:
    """Circles end, and differ by what else they hold."""

    def circle(end: int) -> list:
        made: list = [end]
        made.append({"back": made})
        return made

    assert digest(circle(1)) == digest(circle(1)) != digest(circle(2))


def test_installed_packages_are_noted_with_their_versions() -> None:
    """What is installed counts by its name, and its version is noted."""
    digester = Digester()
    digester.digest(np.linalg.norm)
    digester.digest(collections.Counter)

    assert digester.versions == {"numpy": np.__version__}


@pytest.mark.parametrize(
    "value",
    [
        threading.Lock(),
        iter(one for one in "a"),
        lambda: eval("1"),
        lambda: globals(),
        eval(compile("lambda: __import__('json')", "", "eval")),
        relative,
        nested(1000),
    ],
    ids=["lock", "generator", "eval", "globals", "import", "relative", "deep"],
)
def test_what_cannot_last_has_no_digest(value) -> None:
    """A lock, a generator, and a function that may use anything have no digest."""
    with pytest.raises(NoDigestError):
        digest(value)


def test_a_dataclass_of_here_has_a_digest() -> None:
    """An instance of a class that cannot be imported counts with its class."""

    def make(default: int) -> object:
        return dataclasses.make_dataclass("Made", [("x", int, default)])

    assert digest(make(1)) == digest(make(1)) != digest(make(2))


def test_what_pickle_notes_in_a_class_does_not_count() -> None:
    """Once an instance was pickled, its class has ``__slotnames__``: it is the same class."""

    class Found:
        """One that is not importable."""

    before = digest(Found)
    Found().__reduce_ex__(2)

    assert "__slotnames__" in vars(Found)
    assert digest(Found) == before
