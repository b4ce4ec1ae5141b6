"""Traces: what a recording becomes, by the rules of the format."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.wire import feed as f
from scaler_monitoring.recording import Recorder
from scaler_monitoring.trace import CLUSTER, SLICES_MAX, WORKERS, Trace, _Track, main

W1, W2 = b"W1", b"W2"
METADATA = {"process_name": "name", "process_sort_index": "sort_index", "thread_name": "name"}


def snapshot(clock=10.0, time=1010.0, run="run", workers=(W1, W2), **fields):
    """Return a snapshot of a scheduler that has been there for so long as its clock says."""
    rows = [f.Worker(one, host="host", pid=100 + index) for index, one in enumerate(workers)]
    return f.Snapshot(
        run, 1, clock=clock, time=time, scheduler=f.Process(up_s=clock), workers=rows, **fields
    )


def trace(*events, **fields):
    """Return the trace of a snapshot, then these."""
    found = list(Trace().convert([snapshot(**fields), f.Events("run", 1, 0.0, {}, list(events))]))
    check(found)
    return [one for one in found if one["ph"] not in {"C", "M"}]


def check(events):
    """Assert what the format demands of a trace, and that its slices are beside or within others.

    A reader is free to drop or cut those that overlap otherwise.
    """
    named = set()
    slices: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for one in json.loads(json.dumps(events)):
        assert type(one["name"]) is str
        assert one["name"]
        assert type(one["pid"]) is type(one["tid"]) is int
        assert type(one["ts"]) is int
        assert one["ts"] >= 0
        assert type(one["args"]) is dict
        kind = one["ph"]
        track = one["pid"], one["tid"]
        assert kind in {"X", "i", "C", "M"}
        if kind == "X":
            assert type(one["dur"]) is int
            assert one["dur"] >= 0
            slices.setdefault(track, []).append((one["ts"], one["ts"] + one["dur"]))
        elif kind == "i":
            assert one["s"] in {"t", "p"}
        elif kind == "C":
            assert all(type(value) in {int, float} for value in one["args"].values())
        else:
            assert list(one["args"]) == [METADATA[one["name"]]]
            named.add((one["name"], *track))
    for process, number in slices:
        assert ("thread_name", process, number) in named
        assert ("process_name", process, 0) in named
    for found in slices.values():
        found.sort(key=lambda one: (one[0], -one[1]))
        for (_, end), (start, other) in pairwise(found):
            assert start >= end or other <= end


def test_work_is_a_slice_on_the_track_of_its_worker():
    """Work is a slice on its worker's named track, in microseconds since the scheduler began."""
    events = list(
        Trace().convert(
            [snapshot(), f.Events("run", 1, 0.0, {}, [f.Done(12.0, W2, 3, 7, 5, "add", 1.5)])]
        )
    )
    check(events)
    (work,) = [one for one in events if one["ph"] == "X"]
    (name,) = [one for one in events if one["name"] == "thread_name" and one["tid"] == work["tid"]]

    assert (work["name"], work["cat"], work["pid"]) == ("add", "done", WORKERS)
    assert (work["ts"], work["dur"]) == (10_500_000, 1_500_000)
    assert (work["args"]["session"], work["args"]["first"], work["args"]["count"]) == (3, 7, 5)
    assert name["args"]["name"] == "101|host"


def test_what_failed_is_seen():
    """A failure has a name and a colour of its own, and is a mark if it had no worker."""
    failed, unplaced = trace(
        f.Failed(12.0, W1, 1, 0, 1, "load", 0.5, 2, "exception", "KeyError", "'x'", "Traceback"),
        f.Failed(12.0, b"", 1, 1, 1, "load", reason="unplaced"),
    )

    assert (failed["ph"], failed["name"], failed["cat"]) == ("X", "load failed: KeyError", "failed")
    assert failed["cname"] == "terrible"
    assert (failed["args"]["traceback"], failed["args"]["attempt"]) == ("Traceback", 2)
    assert (unplaced["ph"], unplaced["s"], unplaced["pid"]) == ("i", "p", CLUSTER)
    assert unplaced["name"] == "load failed: unplaced"


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (f.Cancelled(11.0, W1, 1, 0, 1, "f"), "f cancelled"),
        (f.Failed(11.0, W1, 1, 0, 1, "f", reason="worker_died"), "f failed: worker_died"),
        (f.Retried(11.0, W1, 1, 0, "f", 1, "exception", "OSError"), "f retried: OSError"),
        (f.WorkerDied(11.0, W1, signal=9), "died: signal 9"),
        (f.WorkerDied(11.0, W1, session=1, task=2, function="f", out_of_memory=True),
         "died: out of memory, running 1:2 f"),
    ],
)  # fmt: skip
def test_marks_of_a_worker(event, name):
    """Momentary events of a worker are marks on its track."""
    (mark,) = trace(event)

    assert (mark["ph"], mark["s"], mark["name"], mark["pid"]) == ("i", "t", name, WORKERS)
    assert mark["ts"] == 11_000_000


def test_an_operator_leaves_a_mark():
    """What an operator did is a mark of the cluster."""
    (mark,) = trace(f.Operated(11.0, "operator:ann", "cancel", "function train", 1200))

    assert (mark["ph"], mark["s"], mark["pid"], mark["ts"]) == ("i", "p", CLUSTER, 11_000_000)
    assert mark["name"] == "operator:ann has cancelled function train: 1,200 tasks"


def test_a_task_contains_what_ran_while_it_waited():
    """A slice contains those that ran while it waited; one that only overlaps begins later."""
    inner, outer, after = trace(
        f.Done(11.0, W1, function="inner", busy_s=0.5),
        f.Done(12.0, W1, function="outer", busy_s=2.0),
        f.Done(13.0, W1, function="after", busy_s=1.2),
    )

    assert (inner["ts"], inner["dur"]) == (10_500_000, 500_000)
    assert (outer["ts"], outer["dur"]) == (10_000_000, 2_000_000)
    assert (after["ts"], after["dur"]) == (12_000_000, 1_000_000)


def test_counters_are_of_snapshots():
    """Snapshots make counters of tasks and of what was used."""
    tasks = f.Tasks(waiting=4, ready=3, assigned=2, running=1)
    events = list(Trace().convert([snapshot(tasks=tasks, objects_bytes=7)]))
    check(events)
    found = {one["name"]: one["args"] for one in events if one["ph"] == "C"}

    assert found["tasks"] == {"running": 1, "assigned": 2, "ready": 3, "waiting": 4}
    assert found["objects"] == {"bytes": 7}


def test_another_scheduler_goes_on_in_the_same_time():
    """Another scheduler's work is on the same time axis and tracks, after a mark."""
    messages = [
        snapshot(10.0, 1010.0),
        f.Events("run", 1, 0.0, {}, [f.Done(11.0, W1, function="f", busy_s=0.5)]),
        snapshot(3.0, 1023.0, "other"),
        f.Events("other", 1, 0.0, {}, [f.Done(4.0, W1, function="f", busy_s=0.5)]),
    ]
    events = list(Trace().convert(messages))
    check(events)
    one, other = (found for found in events if found["ph"] == "X")
    (mark,) = (found for found in events if found["ph"] == "i")

    assert (one["ts"], other["ts"]) == (10_500_000, 23_500_000)
    assert one["tid"] == other["tid"]
    assert (mark["name"], mark["ts"]) == ("the scheduler was started again", 20_000_000)


def test_nothing_is_said_before_a_snapshot():
    """Events before the first snapshot are left out, as their time is unknown."""
    assert list(Trace().convert([f.Events("run", 1, 0.0, {}, [f.Done(1.0, W1)])])) == []


times = st.floats(0.0, 100.0)
spans = st.floats(0.0, 20.0)
works = st.builds(
    lambda at, worker, busy_s, name: f.Done(at, worker, function=name, busy_s=busy_s),
    times, st.sampled_from([W1, W2]), spans, st.text(max_size=5),
)  # fmt: skip
others = st.builds(lambda at: f.Cancelled(at, W1, 1, 0, 1, "f"), times)


@given(st.lists(works | others, max_size=30))
def test_any_events_make_a_valid_trace(events):
    """Any events, in the order in which schedulers tell them, make a valid trace."""
    trace(*sorted(events, key=lambda one: one.at))


def test_a_track_remembers_a_limited_number():
    """A track remembers a bounded number of slices that have ended."""
    track = _Track(1)
    for index in range(2 * SLICES_MAX):
        assert track.place(10 * index, 10 * index + 5) == 10 * index

    assert len(track._slices) == SLICES_MAX


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path):
    """Return a recording."""
    path = tmp_path / "feed.rec"
    with Recorder(str(path)) as recorder:
        recorder.apply(snapshot(), 0.0)
        recorder.apply(f.Events("run", 1, 0.0, {}, [f.Done(12.0, W1, function='"<é>')]), 0.5)
    return path


def test_the_command_writes_a_file(recorded, tmp_path, capsys):
    """The command writes its file beside the recording, or where it is told to."""
    other = tmp_path / "other.json"

    assert main([str(recorded)]) == 0
    assert main([str(recorded), str(other)]) == 0
    assert capsys.readouterr().out == f"{recorded}.json\n{other}\n"
    made = json.loads(other.read_text())
    assert made == json.loads((tmp_path / "feed.rec.json").read_text())
    check(made["traceEvents"])
    assert '"<é>' in [one["name"] for one in made["traceEvents"]]


def test_a_recording_that_was_cut_off_becomes_a_trace(recorded, tmp_path):
    """A recording that was cut off becomes a trace of what it holds."""
    recorded.write_bytes(recorded.read_bytes()[:-1])

    assert main([str(recorded)]) == 0
    made = json.loads((tmp_path / "feed.rec.json").read_text())
    assert {one["ph"] for one in made["traceEvents"]} == {"C", "M"}


def test_what_cannot_be_converted_is_one_line(recorded, tmp_path, capsys):
    """A failed conversion is one line and a status, and overwrites nothing."""
    (tmp_path / "text").write_text("no recording")
    Recorder(str(tmp_path / "empty")).close()
    before = recorded.read_bytes()
    for arguments, says in (
        ([str(tmp_path / "text")], "is no recording"),
        ([str(tmp_path / "nosuch")], "cannot read"),
        ([str(tmp_path / "empty")], "holds no snapshot"),
        ([str(recorded), str(recorded)], "is the recording itself"),
        ([str(recorded), str(tmp_path)], "cannot write"),
        ([], "file is missing"),
    ):
        assert main(arguments) == 2
        printed = capsys.readouterr()
        assert says in printed.err
        assert printed.err.startswith("scaler_trace: ")
        assert printed.err.count("\n") == 1
        assert printed.out == ""
    assert recorded.read_bytes() == before
    assert not (tmp_path / "text.json").exists()
    assert not (tmp_path / "empty.json").exists()


def test_a_trace_says_what_was_left_out(tmp_path):
    """Events that the scheduler left out are said in the trace: on a track, and in its metadata."""
    path = tmp_path / "feed.rec"
    batch = f.Events("run", 1, 12.0, {"done": 40, "assigned": 7}, [f.Done(12.0, W1, function="f")])
    with Recorder(str(path)) as recorder:
        recorder.apply(snapshot(), 0.0)
        recorder.apply(batch, 0.5)

    assert main([str(path)]) == 0
    made = json.loads((tmp_path / "feed.rec.json").read_text())
    check(made["traceEvents"])
    (gap,) = [one for one in made["traceEvents"] if one.get("cat") == "sampled"]
    assert gap["name"] == "left out: 40 done"
    assert gap["ts"] + gap["dur"] == 12_000_000
    assert made["otherData"]["complete"] == "no: 40 of 41 events were left out"
    assert made["otherData"]["left out"] == "40 done"


def test_a_whole_trace_says_so(recorded, tmp_path):
    """A trace of all that happened says that nothing was left out."""
    assert main([str(recorded)]) == 0
    made = json.loads((tmp_path / "feed.rec.json").read_text())

    assert made["otherData"] == {"complete": "yes: no event was left out"}
