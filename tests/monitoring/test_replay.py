"""A recording as a dashboard shows it: it moves in slices, by itself if it is played."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from bokeh.document import Document
from bokeh.models.sources import ColumnDataSource
from bokeh.models.widgets.markups import Div

from scaler_cluster.errors import ConfigError
from scaler_cluster.wire import feed as f
from scaler_monitoring.dashboard import watch as watch_module
from scaler_monitoring.dashboard.address import Address
from scaler_monitoring.dashboard.pages import PAGES
from scaler_monitoring.dashboard.pages.profile import Profile
from scaler_monitoring.dashboard.settings import Settings
from scaler_monitoring.dashboard.slider import Slider
from scaler_monitoring.dashboard.status import Status
from scaler_monitoring.dashboard.tab_view import View
from scaler_monitoring.dashboard.template import links
from scaler_monitoring.dashboard.watch import Replay, Watch
from scaler_monitoring.recording import Recorder
from scaler_monitoring.theme import LIGHT

LENGTH = 20


@pytest.fixture
def path(tmp_path):
    """Return the path of a recording of 20 seconds, with one task done in each."""
    name = str(tmp_path / "x.rec")
    with Recorder(name) as recorder:
        for n in range(LENGTH + 1):
            told = f.Snapshot("run", n + 1, clock=1.0 + n, time=1e9 + n, interval_s=1.0)
            told.tasks.done = n
            recorder.apply(told, 50.0 + n)
    return name


def tab(watch, address):
    """Return what one tab shows."""
    return View(watch, LIGHT, Settings(), links(""), 1000, address)


async def until(condition):
    """Give others their turns until this holds."""

    async def poll():
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)

    await asyncio.wait_for(poll(), 60.0)


async def replay_of(path):
    """Return one that has come to the end of a recording, as at first it does."""
    replay = Replay.of(path)
    replay.listen(asyncio.get_running_loop().create_future())
    await until(lambda: not replay.is_moving)
    return replay


async def comes(replay, moment):
    """Wait until a replay has come to a moment."""
    await until(lambda: not replay.is_moving and replay.wanted == moment)
    assert replay.now == 50.0 + moment
    assert replay.model.snapshot.tasks.done == int(moment)


def test_others_have_their_turns_while_it_moves(path, monkeypatch):
    """Between two slices others run; who wants another moment meanwhile gets that one."""
    monkeypatch.setattr(watch_module, "SLICE_S", 0.0)

    async def run():
        replay = await replay_of(path)
        assert not replay.is_moving
        before = replay.model
        replay.go(7.0)
        turns = 0
        while replay.is_moving:
            assert replay.model is before
            await asyncio.sleep(0)
            turns += 1
            if turns == 3:
                monkeypatch.setattr(watch_module, "SLICE_S", 10.0)
                replay.go(3.5)
        assert turns > 3
        await comes(replay, 3.5)
        replay.close()

    asyncio.run(run())


def test_it_answers_before_it_is_read(path, monkeypatch):
    """What it has to show is on its way then, and how far that is is said."""
    monkeypatch.setattr(watch_module, "SLICE_S", 0.0)

    async def run():
        replay = Replay.of(path)
        replay.listen(asyncio.get_running_loop().create_future())
        view = tab(replay, Address())
        slider, status = Slider(view, replay), Status(view)
        said = set()
        while replay.is_moving:
            assert not slider.has_come()
            status.update()
            said.add(status.root.text)
            await asyncio.sleep(0)
        assert len(said) > LENGTH
        assert all("<b>Reading</b>" in one and "2001-09-09" in one for one in said)
        assert (replay.wanted, view.address.get("at")) == (20.0, "")
        assert slider.has_come()
        status.update()
        assert ", as it ended at 2001-09-09 " in status.root.text

        # Who has a link to a moment gets that one, known or not as yet.
        other = Replay.of(path)
        other.listen(asyncio.get_running_loop().create_future())
        Slider(tab(other, Address("at=12")), other)
        await comes(other, 12.0)
        other.close()
        replay.close()

    asyncio.run(run())


def test_nothing_to_show_is_said(tmp_path):
    """A recording that has heard no scheduler says so."""
    name = str(tmp_path / "x.rec")
    Recorder(name).close()

    async def run():
        replay = await replay_of(name)
        status = Status(tab(replay, Address()))
        status.update()
        assert "<b>Nothing to show</b>: no scheduler was heard in " in status.root.text
        replay.close()

    asyncio.run(run())


def test_it_is_played_to_its_end(path, monkeypatch):
    """Played, it goes on by itself, stands still at its end, and begins anew from there."""
    monkeypatch.setattr(watch_module, "TICK_S", 0.1)

    async def run():
        replay = await replay_of(path)
        replay.go(15.0, 10)
        await comes(replay, 15.0)
        await comes(replay, 16.0)
        await comes(replay, 20.0)
        assert replay.speed == 0
        replay.go(20.0, 60)
        await comes(replay, 0.0)
        replay.go(replay.wanted)
        await comes(replay, 0.0)
        assert replay.speed == 0
        replay.close()

    asyncio.run(run())


def test_moments_that_are_none(path):
    """Beyond an end it is the end; what is no number in an address is not looked at."""

    async def run():
        replay = await replay_of(path)
        replay.go(1e300)
        await comes(replay, 20.0)
        replay.go(-5.0)
        await comes(replay, 0.0)
        for text in ("nan", "inf", "x", ""):
            address = Address(f"at={text}&sort=took")
            slider = Slider(tab(replay, address), replay)
            assert slider.has_come()
            assert (address.get("at"), address.get("sort")) == ("0.0", "took")
        for tags in ([1.0], [5.0, 7, 1], [5.0, "x", 1], ["nan", 0, 2], [None, 0, 3], ["now", 0, 4]):
            slider.root.tags = [*tags, 0.0, 20.0]
            assert replay.wanted == 0.0
        Slider(tab(replay, Address("at=5.5")), replay)
        await comes(replay, 5.5)
        replay.close()

    asyncio.run(run())


def test_a_tab_says_what_it_heard_last(path):
    """What a browser wanted is answered with its number: it ignores what was said before."""

    async def run():
        replay = await replay_of(path)
        slider, other = (Slider(tab(replay, Address()), replay) for _ in range(2))
        assert slider.has_come()
        assert not slider.has_come()
        slider.root.tags = [4.0, 0, 1, 0.0, 20.0]
        assert not slider.has_come()
        await comes(replay, 4.0)
        assert slider.has_come()
        assert other.has_come()
        assert (slider.root.tags, other.root.tags) == (
            [4.0, 0, 1, 0.0, 20.0],
            [4.0, 0, 0, 0.0, 20.0],
        )
        # Pause, in a tab that does not know yet how far it is.
        replay.go(9.0, 1)
        slider.root.tags = [None, 0, 2, 0.0, 20.0]
        await comes(replay, 9.0)
        assert slider.has_come()
        assert slider.root.tags == [9.0, 0, 2, 0.0, 20.0]
        replay.close()

    asyncio.run(run())


def test_a_file_that_is_gone_ends_it(path, tmp_path):
    """If the recording cannot be read any more, whoever listens to it is told."""

    async def run():
        replay = Replay.of(path)
        end = asyncio.get_running_loop().create_future()
        replay.listen(end)
        await until(lambda: not replay.is_moving)
        (tmp_path / "x.rec").unlink()
        replay.go(1.0)
        with pytest.raises(ConfigError, match="cannot read"):
            await end
        replay.close()

    asyncio.run(run())


def test_a_silent_scheduler_is_told_of_its_moment(tmp_path):
    """In a gap of a recording it is said since when the scheduler was silent."""
    name = str(tmp_path / "x.rec")
    with Recorder(name) as recorder:
        for n in (0, 100):
            recorder.apply(f.Snapshot("run", n + 1, clock=1.0 + n, time=1e9 + n), 50.0 + n)

    async def run():
        replay = await replay_of(name)
        assert not replay.model.is_stale(replay.now)
        replay.go(40.0)
        await until(lambda: not replay.is_moving)
        assert replay.model.is_stale(replay.now)
        said = replay.said_of_silence("x.rec", "40s")
        assert said.startswith("<b>Recording</b> x.rec, as it was at ")
        assert said.endswith(": the scheduler had been silent for 40s.")
        replay.close()

    asyncio.run(run())


# -- pages of another moment -------------------------------------------------------------------


def told(seconds):
    """Return what a scheduler said in so many seconds: of each kind of thing something."""
    watch = Watch("by hand")
    for n in range(1, seconds + 1):
        at = float(n)
        why = {"function": f"fails{n % 3}", "error": "E", "message": "why", "busy_s": 0.2}
        events = [
            f.Assigned(at - 0.9, b"W1", 1, n, 1, f"does{n % 4}"),
            f.Done(at - 0.5, b"W1", 1, n, 1, f"does{n % 4}", 0.3),
            f.Failed(at - 0.2, b"W2", 1, 100 + n, **why),
            f.GraphOver(at - 0.1, 1, 200 + n, nodes=1, done=1),
        ]
        line = f.LogLine(at - 0.5, b"W1", source="stdout", text=f"line {n}")
        functions = [f.Function(f"does{k}", done=n, submitted=2 * n, busy_s=k) for k in range(4)]
        if n < 20:
            functions.append(f.Function("idle", done=5, submitted=5, busy_s=9.0))
        else:
            functions.append(f.Function("idle", done=n, submitted=2 * n, busy_s=9.0))
        workers = [
            f.Worker(b"W%d" % k, b"M", "host", cpu=0.5, rss_bytes=n << 20, tasks=int(n > 10),
                     task=n, session=1, function="does1", age_s=0.4, up_s=at)
            for k in (1, 2)
        ]  # fmt: skip
        snapshot = f.Snapshot(
            "run", n, clock=at, time=1e9 + at, interval_s=1.0, tasks=f.Tasks(done=n, failed=n),
            workers=workers, functions=functions,
            graphs=[f.Graph(1, 900, "g", n, True, done=n // 2)],
            machines=[f.Machine(b"M", "host", cpus=4, cpu=n / 9, memory_bytes=9, free_bytes=5)],
            clients=[f.Client(1, "host", 5, submitted=n)], stores=[f.Store(b"M", "tcp://x", n, n)],
        )  # fmt: skip
        for message in (
            f.Events("run", n, at, {}, events),
            f.Logs("run", n, at, 1e9 + at, lines=[line]),
            snapshot,
        ):
            watch.model.apply(message, at)
    return watch


def shown(page):
    """Return all that a page shows, in texts, tables and figures."""
    document = Document()
    document.add_root(page.root)
    texts: list[Any] = list(document.select({"type": Div}))
    sources: list[Any] = list(document.select({"type": ColumnDataSource}))
    document.remove_root(page.root)
    found = [one.text for one in texts] + [str(one.data) for one in sources]
    return sorted(re.sub(r'data-source="\w+"', "", one) for one in found)


@pytest.mark.parametrize("way", [(150, 7), (7, 150)])
@pytest.mark.parametrize("kind", PAGES)
def test_a_page_shows_what_was_then(kind, way):
    """A page that had shown another moment shows the same as one that was opened at this one."""

    def page_of(watch):
        page = kind(View(watch, LIGHT, Settings(), links(""), 1000, Address("graph=1:900")))
        page.update(watch.model)
        page.restore()
        return page

    watch, then = map(told, way)
    watch.is_live = then.is_live = False
    page, opened = page_of(watch), page_of(then)
    before = shown(page)
    watch.model, watch.activity = then.model, then.activity
    page.update(then.model)

    assert shown(page) == shown(opened)
    # There are no samples of stacks in a recording.
    assert before != shown(page) or kind is Profile
