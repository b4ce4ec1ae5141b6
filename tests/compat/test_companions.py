"""Libraries that were written for Scaler run the examples of their own READMEs on ours.

The examples come from what is installed: a README is the description of its distribution.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata

import pytest

from scaler import SchedulerClusterCombo
from tests.runtime.helpers import environment

pytestmark = pytest.mark.slow
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE | re.IGNORECASE)


def examples_of(*distributions: str) -> list[str]:
    """Return the Python of the README of the first of these that is installed."""
    for name in distributions:
        try:
            text = metadata.distribution(name).read_text("METADATA")
        except metadata.PackageNotFoundError:
            continue
        assert text is not None
        return BLOCK.findall(text)
    pytest.skip(f"{distributions[0]} is not installed: tox run -e companions")


def the_one(blocks: list[str], part: str) -> str:
    """Return the only example that has this in it."""
    (block,) = [block for block in blocks if part in block]
    return block


def run(source: str, tmp_path) -> str:
    """Run a program, and return what it printed last."""
    file = tmp_path / "program.py"
    file.write_text(source)
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment(),
        check=False,
    )

    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip().rpartition("\n")[2]


def replace(text: str, *pairs: tuple[str, str]) -> str:
    """Return a text in which each of these stood once, and was replaced."""
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


# -- parfun ----------------------------------------------------------------------------------


@pytest.fixture
def parfun() -> str:
    """The example of parfun, to be given another backend than processes."""
    blocks = examples_of("opengris-parfun", "parfun")
    return the_one(blocks, '"local_multiprocessing"')


def test_parfun_on_a_cluster_of_its_own(parfun, tmp_path) -> None:
    """The local backend of parfun starts a cluster, with every setting that parfun knows."""
    source = replace(parfun, ('"local_multiprocessing"', '"scaler_local", n_workers=2'))

    assert run(source, tmp_path) == "[1, 4, 9]"


def test_parfun_on_a_cluster_that_is_there(parfun, tmp_path) -> None:
    """The remote backend of parfun splits work for a running cluster by the time tasks took."""
    with SchedulerClusterCombo(2) as cluster:
        remote = f'"scaler_remote", scheduler_address="{cluster.get_address()}", n_workers=2'
        more = "print(*(sum(list_pow(list(range(50_000)), 2)) for _ in range(5)))"
        source = replace(
            parfun,
            ('"local_multiprocessing"', remote),
            ("print(list_pow(", f"{more}; print(list_pow("),
        )

        assert run(source, tmp_path) == "[1, 4, 9]"


NESTED = """
import parfun as pf

@pf.parallel(split=pf.per_argument(values=pf.py_list.by_chunk), combine_with=pf.py_list.concat)
def inner(values):
    return [value + 1 for value in values]

@pf.parallel(split=pf.per_argument(values=pf.py_list.by_chunk), combine_with=pf.py_list.concat)
def outer(values):
    return inner(values)

with pf.set_parallel_backend_context("scaler_remote", scheduler_address="{address}", n_workers=2):
    print(outer(list(range(5))))
"""


def test_parfun_inside_of_its_own_tasks(parfun, tmp_path) -> None:
    """A parallel function of parfun may call another one on the cluster that it runs on."""
    with SchedulerClusterCombo(1) as cluster:
        source = NESTED.format(address=cluster.get_address())

        assert run(source, tmp_path) == "[1, 2, 3, 4, 5]"


# -- pargraph --------------------------------------------------------------------------------


@pytest.fixture
def pargraph() -> list[str]:
    """The examples of pargraph."""
    return examples_of("pargraph")


CLUSTER = """
from pargraph import GraphEngine
from scaler import Client, SchedulerClusterCombo
from scaler_exec import ScalerExecutor
cluster = SchedulerClusterCombo(n_workers=2)
client = Client(address=cluster.get_address())
"""
END = """
client.disconnect()
cluster.shutdown()
"""


@pytest.mark.parametrize("backend", ["client", "ScalerExecutor(2)"])
def test_its_engine_sends_tasks(pargraph, tmp_path, backend) -> None:
    """The engine of pargraph runs the graph of its README, for one key and for several."""
    graph, keys = the_one(pargraph, '"z")  # 12'), the_one(pargraph, "# [1, 2, 10]")
    several = re.sub(r"graph_engine\.get\(.*\)", r"print(one, \g<0>)", keys)
    source = CLUSTER + f"graph_engine = GraphEngine({backend})\n"
    source += replace(graph, ("graph_engine.get(", "one = graph_engine.get(")) + several

    # The comment there says 10; it is what the graph says.
    assert run(source + END, tmp_path) == "12 [1, 2, 12]"


def test_its_graphs_run_here(pargraph, tmp_path) -> None:
    """A graph that pargraph's decorators make runs when it is sent whole, and by its engine."""
    source = the_one(pargraph, "def map_reduce_sort(array") + CLUSTER
    source += """
array = np.random.rand(20)
graph, keys = map_reduce_sort.to_graph(partition_count=4).to_dict(array=array)
whole = client.get(graph, keys)[keys[0]]
one_by_one = GraphEngine(client).get(graph, keys)[0]
alone = map_reduce_sort(array, 4)
print(all(np.array_equal(np.sort(array), found) for found in (whole, one_by_one, alone)))
"""

    assert run(source + END, tmp_path) == "True"
