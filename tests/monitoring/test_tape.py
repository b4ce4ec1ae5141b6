"""A recording in which one goes to any moment: what is there then is what was there live."""

from __future__ import annotations

from collections import deque
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.call_tree import CallTree, Frame
from scaler_cluster.errors import ConfigError
from scaler_cluster.wire import feed as f
from scaler_monitoring import tape as tape_module
from scaler_monitoring.activity import Activity
from scaler_monitoring.model import DETAILS_MAX, Model
from scaler_monitoring.profiled import Profiled
from scaler_monitoring.recording import Recorder, messages, parts_of
from scaler_monitoring.tape import Tape

STEP_S = 7.0
"""From one message to the next: some of them come between two copies, and between two jumps."""


def plain(value):
    """Return all that something holds, as what can be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return [(plain(key), plain(one)) for key, one in value.items()]
    if isinstance(value, set):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple | deque):
        return [plain(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value), *(plain(getattr(value, one.name)) for one in fields(value))]
    names = getattr(value, "__slots__", ()) or getattr(value, "__dict__", {})
    if isinstance(value, type) or not names:
        # nan equals nothing.
        return repr(value)
    return [type(value), *((name, plain(getattr(value, name))) for name in names)]


def live(messages, until):
    """Return what one knows who heard these, each with its time, until a moment."""
    activity, profiled = Activity(), Profiled()
    model = Model(follower=activity)
    for now, message in messages:
        if isinstance(message, f.Samples) and now <= until:
            profiled.add(message, now)
        elif now <= until:
            model.apply(message, now)
    return plain((model, activity)), sampled(profiled)


def sampled(profiled):
    """Return all that was seen of tasks."""
    seen = profiled.seen(-1e9, 1e9)
    stacks = [(*(one.name for one in stack), us) for stack, us in seen.tree.stacks()]
    return sorted(stacks), seen.samples, profiled.by_time(), profiled.running


def message(kind, number, at):
    """Return a message of a kind, sent at this moment; the third scheduler follows two others."""
    run = f"run{number // 20}"
    if kind == "snapshot":
        workers = [
            f.Worker(b"W%d" % n, b"M", "host", cpu=n / 2, tasks=1, task=number, function="held",
                     age_s=1.5, up_s=at + 1, busy_s=at / 2)
            for n in range(1 + number % 3)
        ]  # fmt: skip
        functions = [f.Function("add", done=number, failed=number // 4, submitted=number)]
        return f.Snapshot(
            run, number, clock=at, time=1e9 + at, interval_s=1.0, tasks=f.Tasks(done=number),
            workers=workers, functions=functions, machines=[f.Machine(b"M", "host", cpus=4)],
        )  # fmt: skip
    if kind == "logs":
        line = f.LogLine(at, b"W1", source="stdout", text=f"line {number}")
        return f.Logs(run, number, at, 1e9 + at, lines=[line])
    if kind == "samples":
        tree = CallTree()
        for name in ("f", f"g{number % 3}"):
            tree.add([Frame(name, "x.py", 1)], 1000 + number)
        running = [
            f.Running(b"W1", session=1, task=number, function="add", age_s=1.5, stack="stack")
        ]
        seen = [f.Sampled(b"W1", "add", 2, tree.packed())]
        return f.Samples("run", number, at, running=running, sampled=seen)
    events = {
        "done": f.Done(at, b"W1", 1, number, 1, "add", 1.2),
        "failed": f.Failed(at, b"W0", 1, number, function="add", error="E", message="why",
                           traceback="where", busy_s=0.5),
        "died": f.WorkerDied(at, b"W2", b"M", signal=9),
        "assigned": f.Assigned(at, b"W1", 1, number, 1),
    }  # fmt: skip
    return f.Events(run, number, at, {}, [events[kind]])


KINDS = ("snapshot", "done", "failed", "died", "assigned", "logs", "samples")


def recorded(path, kinds):
    """Record messages of these kinds, after a first snapshot; return each with its time."""
    told = [
        (100.0 + STEP_S * number, message(kind, number, 1.0 + STEP_S * number))
        for number, kind in enumerate(["snapshot", *kinds])
    ]
    with Recorder(str(path)) as recorder:
        for now, one in told:
            recorder.apply(one, now)
    return told


def shown(tape):
    """Return the model of what a tape shows, and the activity."""
    assert tape.scene is not None
    return tape.scene.model, tape.scene.activity


def goes(tape, moment):
    """Go to a moment, with a pause after each message; return what is there."""
    calls = iter(range(1_000_000))
    while not tape.go(moment, lambda: next(calls) % 2 == 1):
        pass
    return plain(shown(tape)), sampled(tape.scene.profiled)


def tape_of(path):
    """Return the tape of a recording, at its end, which it looked for with pauses."""
    tape = Tape(parts_of(str(path)))
    assert tape.scene is None
    while not tape.find_end(lambda: True):
        pass
    assert tape.go(tape.last, lambda: False)
    return tape


@given(
    st.lists(st.sampled_from(KINDS), max_size=60),
    st.lists(st.floats(0.0, 430.0), min_size=1, max_size=5),
    st.sampled_from([2, 4, tape_module.COPIES_MAX]),
)
def test_any_moment_is_as_it_was_live(kinds, moments, copies_max):
    """Wherever one goes, forward or back, all is known that was known live then, and no more."""
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tape_module, "COPIES_MAX", copies_max)
        path = Path(directory) / "x.rec"
        told = recorded(path, kinds)
        tape = tape_of(path)
        assert goes(tape, tape.last) == live(told, 1e9)
        assert tape.last == STEP_S * len(kinds)

        for moment in (min(one, tape.last) for one in moments):
            assert goes(tape, moment) == live(told, 100.0 + moment)


def test_a_copy_does_not_lose_what_is_let_go_of_later(tmp_path):
    """A failure whose traceback made room for later ones has it again before these."""
    count = DETAILS_MAX + 50
    events = [
        f.Failed(1.0 + n, b"W", 1, n, function="add", message="why", traceback=f"where {n}")
        for n in range(count)
    ]
    snapshots = [f.Snapshot("run", n, clock=1.0 + n, time=1e9 + n) for n in range(count)]
    with Recorder(str(tmp_path / "x.rec")) as recorder:
        for n, event in enumerate(events):
            recorder.apply(snapshots[n], float(n))
            recorder.apply(f.Events("run", n, 1.0 + n, {}, [event]), n + 0.5)
    tape = tape_of(tmp_path / "x.rec")
    assert shown(tape)[0].stream[0].traceback == ""

    assert tape.go(500.0, lambda: False)
    assert shown(tape)[0].stream[0].traceback == "where 0"
    assert tape.go(tape.last, lambda: False)
    assert shown(tape)[0].stream[0].traceback == ""


def test_copies_are_bounded(tmp_path, monkeypatch):
    """However long a recording is, there are so many copies, spread over all of it."""
    monkeypatch.setattr(tape_module, "COPIES_MAX", 8)
    recorded(tmp_path / "x.rec", ["snapshot"] * 400)
    times = [one.arrived_at for one in tape_of(tmp_path / "x.rec")._copies.kept]
    assert 4 <= len(times) <= 8
    assert max(after - before for before, after in pairwise(times)) <= 800

    monkeypatch.setattr(tape_module, "TRACKS_MAX", 3)
    tape = tape_of(tmp_path / "x.rec")
    assert len(tape._copies.kept) <= 3
    assert goes(tape, 700.0)


@pytest.mark.parametrize(
    ("kind", "unit"), [("samples", "NODES_OF_A_TRACK"), ("done", "WORKS_OF_A_TRACK")]
)
def test_what_a_copy_does_not_share_counts(tmp_path, monkeypatch, kind, unit):
    """Copies with large call trees, or with much that was done, are fewer."""
    monkeypatch.setattr(tape_module, "TRACKS_MAX", 30)
    recorded(tmp_path / "x.rec", ["snapshot", kind] * 100)
    assert len(tape_of(tmp_path / "x.rec")._copies.kept) > 4
    monkeypatch.setattr(tape_module, unit, 1)
    assert len(tape_of(tmp_path / "x.rec")._copies.kept) <= 4


def test_no_more_is_read_than_a_moment_takes(tmp_path, monkeypatch):
    """The end is found, and an early moment shown, without a look into what is after that."""
    recorded(tmp_path / "x.rec", ["snapshot"] * 50)
    read: list[float] = []

    def noted(path, offset=0):
        for end, arrived_at, message in messages(path, offset):
            read.append(arrived_at)
            yield end, arrived_at, message

    monkeypatch.setattr(tape_module, "messages", noted)
    tape = Tape(parts_of(str(tmp_path / "x.rec")))
    assert tape.last == 0.0
    assert tape.find_end(lambda: False)
    assert tape.last == 50 * STEP_S
    assert tape.go(2 * STEP_S, lambda: False)
    assert max(read) == 100.0 + 3 * STEP_S


def test_a_recording_without_a_snapshot_has_nothing_to_show(tmp_path):
    """Where no snapshot is, there is one moment, in which nothing is known."""
    with Recorder(str(tmp_path / "x.rec")) as recorder:
        recorder.apply(f.Events("run", 1, 1.0, {}, [f.Done(0.9, b"W", 1, 0, 1, "add", 0.1)]), 5.0)
    tape = Tape(parts_of(str(tmp_path / "x.rec")))

    assert tape.find_end(lambda: False)
    assert tape.last == 0.0
    assert tape.go(0.0, lambda: False)
    assert tape.scene is None


def test_a_file_that_is_gone_is_told(tmp_path):
    """Who goes back in a file that is not there any more gets the error of who reads it."""
    path = tmp_path / "x.rec"
    recorded(path, ["snapshot"] * 5)
    tape = tape_of(path)
    path.unlink()

    with pytest.raises(ConfigError, match="cannot read"):
        tape.go(0.0, lambda: False)
