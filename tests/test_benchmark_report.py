"""The report about all peers: what it says follows from the raw data, and it leaves nothing out."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from benchmarks import ROOT, environments
from benchmarks.catalogue import SCENARIOS, find
from benchmarks.engines import Scaler, by_handles
from benchmarks.figures import Figure
from benchmarks.page import tables
from benchmarks.page.data import TITLES, Data
from benchmarks.page.documents import DOCUMENTS, with_table
from benchmarks.page.svg import chart
from benchmarks.peers import PEERS
from benchmarks.report import NO_TIME, as_json
from benchmarks.runner import Measured, Options, call, groups, run_all
from benchmarks.scenarios import graphs
from benchmarks.scenarios.ladders import climb

if TYPE_CHECKING:
    from pathlib import Path

RAW = ROOT / "benchmarks" / "results" / "report.json"
RAW_MAX = 300_000
RENEW = (
    "run: python -m benchmarks.report_all --from-json benchmarks/results/report.json --write-docs"
)


# -- what the pages say ----------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_page_has_the_table_that_the_raw_data_yields(path: Path) -> None:
    """Nobody writes a figure by hand."""
    text = path.read_text()

    assert with_table(text, DOCUMENTS[path](Data(json.loads(RAW.read_text())))) == text, RENEW


def test_the_picture_is_that_of_the_raw_data() -> None:
    picture = ROOT / "docs" / "images" / "benchmarks.svg"

    assert picture.read_text() == chart(Data(json.loads(RAW.read_text()))), RENEW


def test_the_raw_data_is_small_enough_to_keep() -> None:
    assert RAW.stat().st_size < RAW_MAX


def made(**peers: dict[str, list[float]]) -> Data:
    """Return raw data of one scenario with two figures."""
    figures = {
        peer: {name: Figure.of(values).as_json() for name, values in found.items()}
        for peer, found in peers.items()
    }
    one = {
        "summary": "",
        "units": {"rate": "tasks/s", "wait": "us"},
        "better": {"rate": "more", "wait": "less"},
        "left_out": {},
        "peers": figures,
    }
    return Data({"peers": dict.fromkeys(peers), "scenarios": {"map_noop": one}})


def test_what_we_lose_is_said_with_the_factor() -> None:
    """Where more is better as where less is; an overlap of the repeats is said."""
    data = made(
        ours={"rate": [10.0, 30.0], "wait": [4.0, 4.0]},
        ppe={"rate": [40.0, 40.0], "wait": [8.0, 8.0]},
        ray={"rate": [25.0, 35.0], "wait": [1.0, 1.0]},
        dask={"rate": [5.0, 5.0], "wait": [5.0, 5.0]},
    )

    assert [tuple(loss) for loss in data.losses()] == [
        ("map_noop", "rate", "ppe", 2.0, False),
        ("map_noop", "rate", "ray", 1.5, True),
        ("map_noop", "wait", "ray", 4.0, False),
    ]
    assert tables.losses(data) == [
        (
            "- `map_noop`, rate, tasks/s: ours 20.0; ProcessPoolExecutor 40.0, 2.00 times as good; "
            "Ray 30.0, 1.50 times as good (within the spread)"
        ),
        "- `map_noop`, wait, us: ours 4.00; Ray 1.00, 4.00 times as good",
    ]


@pytest.mark.parametrize(
    ("right", "failed", "missing", "goes_on", "text"),
    [
        (100, 0, 0, 1, "no task is lost; goes on"),
        (99, 1, 0, 1, "1 task fails of 100; goes on"),
        (40, 60, 0, 0, "60 tasks fail of 100; then runs nothing more"),
        (99, 0, 1, 1, "1 result has not come after 15 s; goes on"),
    ],
)
def test_a_fault_is_told_in_words(right, failed, missing, goes_on, text) -> None:
    names = ("right", "failed", "missing", "goes_on", "seconds")
    values = (right, failed, missing, goes_on, 15)
    figures = {
        name: Figure.of([value]).as_json() for name, value in zip(names, values, strict=True)
    }
    raw = {"peers": {"ppe": {}}, "scenarios": {"worker_killed": {"peers": {"ppe": figures}}}}

    assert Data(raw).fault("ppe") == text


# -- how it is measured ----------------------------------------------------------------------

HANGS = """#!{python}
import json, os, subprocess, sys, time
answers = sys.argv[-1].partition("=")[2]
left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
with open(answers, "a") as file:
    file.write(json.dumps({{"scenario": "first", "pid": left.pid}}) + "\\n")
time.sleep(1000)
"""


def test_a_run_that_hangs_keeps_what_it_has_said_and_leaves_nothing_behind(tmp_path) -> None:
    python = tmp_path / "python"
    python.write_text(HANGS.format(python=sys.executable))
    python.chmod(0o755)
    options = Options(timeout_s=1.0, pythons={"ours": str(python)})

    reply = call("ours", options, "first,second", "ours", expected=2)

    assert [answer["scenario"] for answer in reply.answers] == ["first"]
    assert reply.reason == "no end within 1 s"
    psutil.wait_procs([psutil.Process(pid) for pid in [reply.answers[0]["pid"]]
                       if psutil.pid_exists(pid)], timeout=10)  # fmt: skip
    assert not is_alive(reply.answers[0]["pid"])


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_there_was_no_time_for_is_named() -> None:
    scenarios, measured, options = find(["lifecycle"]), Measured(), Options(deadline=0.0)
    said: list[str] = []

    run_all(scenarios, ["ours", "ppe"], options, measured, said.append)

    raw = as_json(scenarios, [], measured, options)
    assert raw["scenarios"]["lifecycle"]["left_out"] == {"ours": NO_TIME, "ppe": NO_TIME}
    assert not said
    assert not measured.failures


def test_a_ladder_ends_before_a_step_that_would_take_too_long() -> None:
    steps = {"1": 1, "10": 10, "huge": 10**12}

    assert climb(steps, float, limit_s=1.0) == {"1": 1.0, "10": 10.0}


GRAPHS = (graphs.tree(8), graphs.chain(5), graphs.fan(4), graphs.stencil(300))


@pytest.mark.parametrize(("graph", "keys", "expected"), GRAPHS)
def test_a_graph_is_submitted_node_by_node(graph, keys, expected) -> None:
    def submit(function, *values):
        return function(*values)

    assert by_handles(submit, graph, keys) == expected


class ClientOfTexts:
    """As the client of opengris-scaler: keys are texts, and each argument is a key."""

    def get(self, graph: dict[str, Any], keys: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, node in graph.items():
            assert type(key) is str
            found[key] = node[0](*map(found.get, node[1:])) if type(node) is tuple else node
        return {key: found[key] for key in keys}


@pytest.mark.parametrize(("graph", "keys", "expected"), GRAPHS)
def test_a_graph_is_given_to_scaler_as_it_wants_it(graph, keys, expected) -> None:
    peer = Scaler()
    peer.client = ClientOfTexts()

    assert peer.get(graph, keys) == expected


def test_what_a_report_runs_is_there() -> None:
    report_all = pytest.importorskip("benchmarks.report_all")

    assert {*report_all.CHOSEN, *report_all.QUICK} <= SCENARIOS.keys()
    assert {*report_all.CHOSEN_PEERS, *report_all.QUICK_PEERS} <= PEERS.keys()


def test_scenarios_of_one_kind_share_a_cluster() -> None:
    scenarios = find(["map_noop", "lifecycle", "round_trip", "graph_fan"])
    names = [[one.name for one in group] for group in groups(scenarios, together=True)]

    assert names == [["map_noop", "round_trip"], ["lifecycle"], ["graph_fan"]]
    assert groups(scenarios, together=False) == [[one] for one in scenarios]


def test_a_peer_that_cannot_be_installed_is_named_with_the_reason(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    found, failed = environments.interpreters(["ours", "ray"], tmp_path, lambda _: None)

    assert found == {}
    assert failed == {"ray": "ray cannot be installed: uv is not here: pip install uv"}


# -- all of it -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_short_report_is_whole(tmp_path) -> None:
    """The page names each scenario and peer, and needs no network; the raw data has all figures."""
    pytest.importorskip("bokeh")
    history = tmp_path / "history"
    history.write_text(json.dumps(PAST) + "\n")
    command = [sys.executable, "-m", "benchmarks.report_all", "--quick", "--repeats", "1"]
    command += ["--out", str(tmp_path), "--history", str(history)]

    done = subprocess.run(
        command, capture_output=True, text=True, timeout=110, check=False, cwd=ROOT
    )

    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    text = (tmp_path / "report.md").read_text()
    for name in SCENARIOS:
        assert f"<code>{name}</code>" in page
        assert f"`{name}`" in text
    assert TITLES.keys() == PEERS.keys()
    for title in TITLES.values():
        assert title in page
        assert title in text
    for wanted in ("What we lose", "Overhead", "Latency", "History"):
        assert f"<h2>{wanted}</h2>" in page
    assert "<script src" not in page
    assert "<link" not in page
    check_raw(json.loads((tmp_path / "report.json").read_text()))
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    assert len(lines) == 2
    named = {one["name"]: one["stats"] for one in lines[1]["benchmarks"]}
    assert named["map_noop[ours-rate]"].keys() == {"min", "max", "mean", "median", "rounds"}


PAST: dict[str, Any] = {
    "datetime": "2026-01-01T00:00:00+00:00",
    "commit_info": {"id": "0123456", "dirty": False},
    "benchmarks": [
        {
            "group": "map_noop",
            "name": "map_noop[ours-rate]",
            "params": {"peer": "ours", "metric": "rate"},
            "extra_info": {"unit": "tasks/s", "better": "more"},
            "stats": {"min": 1.0, "max": 1.0, "mean": 1.0, "median": 1.0, "rounds": 1},
        }
    ],
}


def check_raw(raw: dict[str, Any]) -> None:
    """Check that a short report has each figure of each peer, and says what made it."""
    assert raw["failures"] == []
    assert raw["command"] == "python -m benchmarks.report_all --quick --repeats 1"
    assert raw["machine"].keys() >= {"when", "revision", "processor", "cores", "python", "load"}
    assert raw["peers"].keys() == {"ours", "ppe"}
    assert raw["peers"].keys() | raw["skipped"].keys() == PEERS.keys()
    assert raw["scenarios"].keys() | raw["not_run"].keys() == SCENARIOS.keys()
    for name, scenario in raw["scenarios"].items():
        for metric in SCENARIOS[name].metrics:
            for peer in ("ours", "ppe"):
                figure = Figure(**scenario["peers"][peer][metric.key])
                assert len(figure.values) == 1
                assert figure.low <= figure.median <= figure.high
                assert math.isfinite(figure.median)
