"""What a dashboard keeps on disk: it is bounded, outlives its writer, and leads to any moment."""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.errors import ConfigError
from scaler_cluster.wire import feed as f
from scaler_monitoring import history as history_module
from scaler_monitoring.activity import Activity
from scaler_monitoring.dashboard import watch as watch_module
from scaler_monitoring.dashboard.address import Address
from scaler_monitoring.dashboard.deeds import Deeds, of_function
from scaler_monitoring.dashboard.settings import Settings
from scaler_monitoring.dashboard.slider import Slider, seen
from scaler_monitoring.dashboard.status import Status
from scaler_monitoring.dashboard.tab_view import View
from scaler_monitoring.dashboard.template import links
from scaler_monitoring.dashboard.watch import LiveWatch, Replay, Watch
from scaler_monitoring.history import History
from scaler_monitoring.model import WINDOW_S, Model
from scaler_monitoring.recording import earlier_of, parts_of, read
from scaler_monitoring.tape import Tape
from scaler_monitoring.theme import LIGHT

STEP_S = 300.0
HEAD = {"recording": "scaler-exec feed", "version": 1}
NEVER = 1 << 40
"""Bytes that are not reached."""


def snapshot(number, run=0, done=None):
    """Return what a scheduler says of itself: each counts from nothing, by a clock of its own."""
    done = number if done is None else done
    return f.Snapshot(
        f"run{run}", number + 1, clock=5.0 + STEP_S * number, time=1e9, interval_s=STEP_S,
        tasks=f.Tasks(done=done, submitted=done), sent={"Assign": done},
        workers=[f.Worker(b"W", b"M", "host", given=done)],
        clients=[f.Client(1, "host", 7, done=done, submitted=done)],
        functions=[f.Function("add", done=done, submitted=done)],
    )  # fmt: skip


def failed(number, run=0):
    """Return that a task failed."""
    at = 5.0 + STEP_S * number
    one = f.Failed(at, b"W", 1, number, function="add", error="E", message=f"why {run} {number}")
    return f.Events(f"run{run}", number + 1, at, {}, [one])


class Clocks:
    """Both clocks of a machine: one that is set at will, and one that begins with each boot."""

    def __init__(self, patch):
        self.wall, self.boot = 1e9, 0.0
        patch.setattr(history_module, "wall_clock", lambda: self.wall)
        patch.setattr(history_module, "clock", lambda: self.boot)

    def pass_by(self, seconds):
        """Let time pass."""
        self.wall += seconds
        self.boot += seconds


@pytest.fixture
def clocks(monkeypatch):
    """Return the clocks of this machine."""
    return Clocks(monkeypatch)


class Dashboard:
    """One start of a dashboard, which listens to what it is told by hand."""

    def __init__(self, directory, clocks, bytes_max=NEVER):
        self.clocks = clocks
        self.history = History(str(directory), bytes_max)
        self.model = Model(follower=Activity())
        for _ in self.history.restore(self.model):
            pass

    def hear(self, *messages):
        """Take messages in at this moment."""
        for message in messages:
            self.history.add(message, self.clocks.boot, self.model)
            self.model.apply(message, self.clocks.boot)


def known(model):
    """Return what pages say of the cluster that does not depend on who counts time from where."""
    first = model.snapshot.clock
    return {
        "restarts": model.restarts,
        "tasks": model.snapshot.tasks,
        "sent": model.snapshot.sent,
        "functions": model.snapshot.functions,
        "clients": model.snapshot.clients,
        "given": [row.given for row in model.snapshot.workers],
        "stream": [(one.message, round(one.end - first, 3)) for one in model.stream],
        "news": [(one.kind, round(one.at - first, 3)) for one in model.news],
        "curve": [(round(one.clock - first, 3), one.tasks.done) for one in model.history],
    }


def run_of(steps):
    """Yield messages of a life: a number counts what one scheduler says, None is another one."""
    run = number = 0
    for step in steps:
        if step is None:
            run, number = run + 1, 0
            continue
        for _ in range(step):
            yield [failed(number, run), snapshot(number, run)]
            number += 1


def shown(tape):
    """Return the model of what a tape shows."""
    assert tape.scene is not None
    return tape.scene.model


@given(
    st.lists(st.integers(1, 12) | st.none(), min_size=1, max_size=6),
    st.lists(st.integers(0, 30), max_size=3),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4),
)
def test_restarts_of_the_dashboard_and_of_schedulers_change_nothing(steps, stops, looks):
    """All that is known with restarts is what one knows who listened on; so at any moment before."""
    told = list(run_of([1, *steps]))
    # Before the first snapshot nothing can be shown.
    del told[0][0]
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        clocks = Clocks(patch)
        dashboard, one = Dashboard(directory, clocks), Model()
        were = []
        for n, messages in enumerate(told):
            if n in stops:
                dashboard.history.close()
                # Another boot: that clock begins anew.
                clocks.boot = 3.0
                dashboard = Dashboard(directory, clocks)
            dashboard.hear(*messages)
            for message in messages:
                one.apply(message, clocks.wall)
            were.append((clocks.wall, known(one)))
            assert known(dashboard.model) == were[-1][1]
            clocks.pass_by(STEP_S)

        tape = Tape(dashboard.history.parts, lambda: dashboard.history.ended)
        assert (tape.first, tape.last) == (were[0][0], were[-1][0])
        for look in looks:
            at, expected = were[int(look * (len(were) - 1))]
            pauses = itertools.cycle([False, True])
            while not tape.go(at, lambda: next(pauses)):  # noqa: B023
                pass
            assert known(shown(tape)) == expected
        dashboard.history.close()
        # As a recording, it is shown without a cluster.
        tape = Tape(parts_of(directory))
        assert tape.find_end(lambda: False)
        assert tape.go(tape.last, lambda: False)
        assert known(shown(tape)) == were[-1][1]
        assert (tape.first, tape.last) == (were[0][0], were[-1][0])


def test_the_oldest_goes(tmp_path, clocks):
    """It takes no more bytes than it may; what is there still begins with what was counted."""
    dashboard = Dashboard(tmp_path, clocks, 40_000)
    sizes = []
    for n, messages in enumerate(run_of([30, None, 600])):
        dashboard.hear(*messages)
        clocks.pass_by(STEP_S)
        if n % 50 == 0:
            sizes.append(sum(one.stat().st_size for one in tmp_path.iterdir()))
    assert max(sizes) <= 40_000
    assert sizes[-1] > 30_000
    parts = dashboard.history.parts
    assert [one.path for one in parts] == sorted(map(str, tmp_path.glob("*.rec")))
    # Between others, half an hour of ten minutes each; and 29 tasks of the first scheduler.
    assert parts[0].began > 1e9 + 30 * STEP_S
    earlier = earlier_of(parts[0].path)
    assert earlier is not None
    assert (earlier.restarts, earlier.counted.tasks.done) == (1, 29)
    dashboard.history.close()

    whole = Dashboard(tmp_path, clocks, 40_000)
    assert known(whole.model)["tasks"].done == 29 + 599
    whole.history.close()


def test_one_who_was_killed_as_he_wrote(tmp_path, clocks):
    """What is cut off goes, all before it stays, and what comes after it is read with it."""
    dashboard = Dashboard(tmp_path, clocks)
    for messages in run_of([3]):
        dashboard.hear(*messages)
        clocks.pass_by(1.0)
    dashboard.history.close()
    (path,) = tmp_path.glob("*.rec")
    size = path.stat().st_size
    os.truncate(path, size - 5)
    # The next one had not come to write its head.
    (tmp_path / "001000009999000.rec").write_bytes(b"\x82\xa9reco")

    again = Dashboard(tmp_path, clocks)
    assert known(again.model)["tasks"].done == 1
    again.hear(snapshot(3))
    assert list(tmp_path.glob("*.rec")) == [path]
    assert [one.tasks.done for _, one in read(str(tmp_path)) if isinstance(one, f.Snapshot)] == [
        0, 1, 3
    ]  # fmt: skip
    again.history.close()


def test_a_clock_that_is_set_back_does_not_matter(tmp_path, clocks):
    """What comes is later than what was there, whatever the clock on the wall says."""
    dashboard = Dashboard(tmp_path, clocks)
    dashboard.hear(snapshot(0))
    dashboard.history.close()
    clocks.wall -= 1e6
    again = Dashboard(tmp_path, clocks)
    clocks.pass_by(700.0)
    again.hear(snapshot(1))
    times = [at for at, _ in read(str(tmp_path))]
    assert times == [1e9, 1e9 + 700.0]
    assert [one.began for one in again.history.parts] == times
    again.history.close()


def test_who_may_use_it(tmp_path, clocks):
    """It is made for its user alone, one dashboard writes to it, and it is then free again."""
    directory = tmp_path / "deep" / "down"
    first = History(str(directory), NEVER)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    with pytest.raises(ConfigError, match="another dashboard keeps its history in"):
        History(str(directory), NEVER)
    first.close()
    History(str(directory), NEVER).close()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot keep a history in"):
        History(str(tmp_path / "file"), NEVER)
    with pytest.raises(ConfigError, match="is a directory without a recording"):
        parts_of(str(directory))


def test_what_is_damaged_is_said(tmp_path, clocks):
    """What is no recording is left as it is, and the directory is free for others again."""
    path = tmp_path / "001000000000000.rec"
    path.write_bytes(b"\xc1" * 100)
    for _ in range(2):
        with pytest.raises(ConfigError, match="is damaged, or no recording"):
            History(str(tmp_path), NEVER)
    assert path.read_bytes() == b"\xc1" * 100
    for values, said in (
        ([7], "is no recording"),
        ([HEAD, 7], "is damaged"),
        ([HEAD, []], "is damaged"),
    ):
        path.write_bytes(b"".join(map(msgpack.packb, values)))
        with pytest.raises(ConfigError, match=said):
            History(str(tmp_path), NEVER)


def test_others_have_their_turns_while_it_is_read(tmp_path, clocks, monkeypatch):
    """A dashboard answers at once, says how far it is, and then knows all that was kept."""
    monkeypatch.setattr(watch_module, "SLICE_S", 0.0)
    dashboard = Dashboard(tmp_path, clocks)
    told = list(run_of([5]))
    del told[0][0]
    for messages in told:
        dashboard.hear(*messages)
        clocks.pass_by(STEP_S)
    dashboard.history.close()

    async def run():
        history = History(str(tmp_path), NEVER)
        watch = LiveWatch(f"ipc://{tmp_path}/feed", history=history)
        watch.listen(asyncio.get_running_loop().create_future())
        said: list[str] = []
        while not said or "Reading" in said[-1]:
            said.append(watch.said_of_silence("x", "5m"))
            await asyncio.sleep(0)
        assert len(said) > 5
        assert said[0] == "<b>Reading</b> what was kept of x: until 5m ago."
        assert known(watch.model) == known(dashboard.model)
        watch.close()
        history.close()

    asyncio.run(run())


def test_who_cannot_look_back_is_told(tmp_path, clocks):
    """A file that is gone keeps nobody waiting; what happens, and other moments, are shown."""
    dashboard = Dashboard(tmp_path, clocks)
    for messages in run_of([60]):
        dashboard.hear(*messages)
        clocks.pass_by(STEP_S)
    history = dashboard.history
    Path(history.parts[0].path).unlink()

    async def run():
        live = Watch("by hand")
        past = live.past = Replay("by hand", Tape(history.parts, lambda: history.ended))
        tab = View(live, LIGHT, Settings(), links(""), 1000, Address(f"at={1e9 + 3 * STEP_S}"))
        slider, status = Slider.over(tab), Status(tab)
        assert slider is not None
        await comes(past)
        assert slider.has_come()
        status.update()
        assert "<b>Not shown</b>: cannot read " in status.root.text
        past.go(history.ended)
        await comes(past)
        assert slider.has_come()
        status.update()
        assert "Not shown" not in status.root.text
        past.close()

    asyncio.run(run())
    history.close()


async def comes(past):
    """Wait until the moment that is wanted is shown."""

    async def poll():
        while past.is_moving:  # noqa: ASYNC110
            await asyncio.sleep(0)

    await asyncio.wait_for(poll(), 60.0)


def test_a_tab_looks_back_and_comes_back(tmp_path, clocks):
    """A moment that is chosen is in the address; others stay with what happens; Now leads back."""

    async def run():
        dashboard = Dashboard(tmp_path, clocks)
        for messages in run_of([60]):
            dashboard.hear(*messages)
            clocks.pass_by(STEP_S)
        live = Watch("by hand")
        history = dashboard.history
        past = live.past = Replay("by hand", Tape(history.parts, lambda: history.ended))
        live.model = dashboard.model
        addresses = [Address("sort=took"), Address()]
        tabs = [View(live, LIGHT, Settings(), links(""), 1000, one) for one in addresses]
        one, other = map(Slider.over, tabs)
        assert one is not None
        assert other is not None
        assert one.has_come()
        end = history.ended
        assert one.root.tags == ["now", 0, 0, 1e9, end + (-end % 5)]

        at = 1e9 + 20 * STEP_S
        one.root.tags = [at, 0, 1, 1e9, end]
        await comes(past)
        assert one.has_come()
        assert tabs[0].watch is past
        assert known(tabs[0].model)["tasks"].done == 20
        assert (addresses[0].get("at"), addresses[0].get("sort")) == (str(at), "took")
        assert (tabs[1].watch, addresses[1].get("at")) == (live, "")
        assert past.said_of("x").startswith("<b>Before</b> x, as it was at 2001-09-09 ")

        # What was cannot be acted on, and is what the palette finds.
        deeds = Deeds(replace(tabs[0], may_act=True))
        deeds.update(of_function("add"))
        assert deeds.root.text == ""
        assert seen(live, str(at)) is past
        assert seen(live, "") is live

        one.root.tags = ["now", 0, 2, 1e9, end]
        assert one.has_come()
        assert (tabs[0].watch, addresses[0].get("at")) == (live, "")
        # A link with a moment shows it at once.
        tab = View(live, LIGHT, Settings(), links(""), 1000, Address(f"at={at - STEP_S}"))
        assert Slider.over(tab) is not None
        assert tab.watch is past
        await comes(past)
        assert known(tab.model)["tasks"].done == 19
        past.close()
        history.close()

    asyncio.run(run())


def test_a_window_is_whole_in_each_part(tmp_path, clocks):
    """No more is read than what is needed for the moment, and that is all of its window."""
    dashboard = Dashboard(tmp_path, clocks)
    for messages in run_of([300]):
        dashboard.hear(*messages)
        clocks.pass_by(STEP_S)
    tape = Tape(dashboard.history.parts, lambda: dashboard.history.ended)
    at = 1e9 + 250 * STEP_S
    assert tape.go(at, lambda: False)
    model = shown(tape)
    assert len(model.stream) == WINDOW_S / STEP_S + 1
    assert model.streamed < 15
    dashboard.history.close()
    assert not any(Path(tmp_path).glob("*.json"))
