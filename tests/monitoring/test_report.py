"""The page that tells of a while: what stands in it, what it must not hold, where it is written."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from scaler_cluster.call_tree import CallTree, Frame
from scaler_cluster.errors import ConfigError
from scaler_cluster.wire import feed as f
from scaler_monitoring.period import Period
from scaler_monitoring.report import render, try_path, write

W, M = b"W1", b"S1"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


class Elements(HTMLParser):
    """The elements of a page, what they refer to, and the text of the body."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.references, self.words = [], [], []
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self._open = tag
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in {"src", "href", "action"}]

    def handle_data(self, data):
        if self._open not in {"script", "style"}:
            self.words += data.split()

    def text(self):
        return " ".join(self.words)


def snapshot(seq, clock, **fields):
    return f.Snapshot(
        "run", seq, clock=clock, time=1e9 + clock, interval_s=1.0,
        scheduler=f.Process("node-1", 1, "0.9.9", "3.11", "tcp://10.0.0.1:8516"),
        machines=[f.Machine(M, "node-1", 2, 2, cpus=8, cpu=1.5, memory_bytes=3 << 30)], **fields,
    )  # fmt: skip


def period(name="simulate", traceback="Traceback: here\nValueError: <b>no</b>", **fields):
    """Return ten seconds in which one of two workers had 1,234 tasks, and died."""
    made = Period()
    workers = [f.Worker(W, M, "node-1", "", 77, tasks=1), f.Worker(b"W2", M, "node-1", "", 78)]
    made.apply(snapshot(1, 0.0, workers=workers), 0.0)
    events = [
        f.Done(3.0, W, 1, 1, 1200, name, 2.5),
        f.Failed(
            4.0, W, 1, 1201, 1, name, 0.5, 1, "exception", "ValueError", "<b>no</b>", traceback
        ),
        f.Retried(4.5, W, 1, 1203, name, 1, "exception", "OSError", busy_s=0.1),
        f.Cancelled(5.0, W, 1, 1204, 1, name, 0.1),
        f.WorkerDied(
            6.0, W, M, "node-1", 77, "", 1, 9, name, None, 9, 2 << 30, out_of_memory=True,
            stderr_tail="last words <b>",
        ),
    ]  # fmt: skip
    made.apply(f.Events("run", 1, 6.0, {}, events), 6.0)
    for seq in (2, 3):
        after = snapshot(
            seq, 5.0 * (seq - 1), workers=workers, worker_deaths=1, objects_bytes=5 << 20,
            tasks=f.Tasks(submitted=1240, done=1234, failed=1, cancelled=2, retried=3, ready=3),
            functions=[f.Function(name, 1240, 1234, 1, 2, 0, 3, busy_s=4.0)], **fields,
        )  # fmt: skip
        made.apply(after, 5.0 * (seq - 1))
    return made


def text_of(made):
    return Elements(render(made)).text()


def test_totals_stand_on_the_page():
    """The page has totals of tasks, time and memory, and says where that was."""
    text = text_of(period())

    for part in (
        "tasks done 1,234", "failed 1", "cancelled 2", "retried 3", "tasks per second 123",
        "workers at the end 2", "workers that died 1", "objects at most 5.0 MiB",
        "scheduler tcp://10.0.0.1:8516 on node-1, scaler-exec 0.9.9, Python 3.11",
    ):  # fmt: skip
        assert part in text


def test_time_of_workers_is_told():
    """The time of workers is split into work, overhead and idling."""
    text = text_of(period())

    assert "of workers' time was work 20.0 %" in text
    for name, rest in (
        ("working", "4.0 20.0 %"),
        ("overhead", "6.0 30.0 %"),
        ("idle", "10.0 50.0 %"),
    ):
        assert re.search(rf"{name} [a-z:, ]+ {re.escape(rest)}", text)


def test_functions_are_told():
    """The page has the outcomes and times of each function's tasks."""
    assert "simulate 1,234 1 2 3 3 4.0s 3.24ms 100.0 %" in text_of(period())


def test_tasks_that_ran_inside_of_others_are_told():
    """Tasks that ran on the stack of others are told: they have no rectangles."""
    made = period()
    made.last.tasks.inlined = 7

    assert "7 of the tasks were run by the tasks that waited for them" in text_of(made)


def test_failures_and_deaths_are_told():
    """Failures stand with their last traceback, and deaths with the worker's last words."""
    text = text_of(period())

    assert "simulate: ValueError: <b>no</b>" in text
    assert "Traceback: here ValueError: <b>no</b>" in text
    assert "77|node-1: out of memory, with 2.0 GiB, running 1:9 simulate" in text
    assert "last words <b>" in text


def test_machines_are_told():
    """An unknown value of a machine is left open."""
    assert "node-1 2 8 1.5 3.0 GiB -" in text_of(period())


def test_what_is_missing_is_told():
    """A page that misses events says so."""
    made = period(left_out={"graphs": 4}, skipped={"done": 6})
    made.is_cut_off = True
    made.model.missed = 2
    text = text_of(made)

    assert "The scheduler was not heard at the end" in text
    assert "2 messages of the feed were missed" in text
    assert "4 graphs had no room" in text
    assert "4 of 10 such pieces of work" in text


def test_a_moment_in_which_nothing_happened():
    """A single snapshot is enough for a page."""
    made = Period()
    made.apply(f.Snapshot("run", 1, time=1e9), 0.0)
    text = text_of(made)

    assert "tasks done 0" in text
    assert "No task ended." in text
    assert "None was in use." in text


def test_names_of_users_are_text():
    """No function, message or traceback of a user makes an element or ends a script."""
    harmless, hostile = (Elements(render(period(one, one))) for one in ("f", HOSTILE))

    assert harmless.tags == hostile.tags
    assert HOSTILE in hostile.text()


def test_the_page_needs_nothing_else():
    """The page loads no script, style or picture from elsewhere."""
    page = render(period())

    assert Elements(page).references == []
    assert "<link" not in page
    assert not re.search(r"@import|url\(\s*['\"]?https?:", page.partition("<script")[0])


# -- files -------------------------------------------------------------------------------------


def test_a_page_replaces_what_was_there(tmp_path):
    """A page replaces the file at its path at once, and leaves nothing beside it."""
    path = tmp_path / "report.html"
    path.write_text("old")

    write(str(path), period())

    assert path.read_text().startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_goes_on_leading_there(tmp_path):
    """A page that is written to a symbolic link is written where that leads."""
    real, link = tmp_path / "real.html", tmp_path / "link.html"
    link.symlink_to(real)

    write(str(link), period())

    assert link.is_symlink()
    assert real.exists()


def test_surrogates_do_not_keep_it_from_being_written(tmp_path):
    """A report is written though a function's name holds half of a surrogate pair."""
    write(str(tmp_path / "report.html"), period("\ud800"))

    assert (tmp_path / "report.html").read_text().rstrip().endswith("</html>")


def test_it_is_tried_whether_a_page_can_be_written(tmp_path):
    """A path is tried without leaving a file, or changing the one that is there."""
    path = tmp_path / "report.html"

    try_path(str(path))

    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="cannot write .*: Is a directory"):
        try_path(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot write .*none.*: No such file or directory"):
        try_path(str(tmp_path / "none" / "report.html"))


# -- where the time went -----------------------------------------------------------------------


def sampled(stacks, function="simulate", count=400):
    """Return a period whose tasks were sampled."""
    tree = CallTree()
    for stack, us in stacks:
        tree.add([Frame(name, f"/x/{name}.py", 3) for name in stack], us)
    made = period()
    made.apply(f.Samples(sampled=[f.Sampled(W, function, count, tree.packed())]), 10.0)
    return made


def test_a_profile_is_drawn():
    """A report of tasks that were sampled has a flame graph and their functions."""
    page = render(sampled([(("g", "h"), 3_000_000), (("g",), 1_000_000)]))
    text = Elements(page).text()

    assert "Where the time of tasks went" in text
    assert "400 samples of 4.0s of tasks. A share is off by less than 5.0 points" in text
    assert "h /x/h.py:3 75.0% 3.0s 75.0% 3.0s g /x/g.py:3 25.0% 1.0s 100.0% 4.0s" in text
    assert 'title="h, /x/h.py:3: 75.0%, 3.0s; itself 75.0%"' in page
    assert re.search(r'style="left: 0.000%; width: 75.000%; top: 3.0em', page)


def test_a_report_without_samples_has_no_profile():
    """A report of tasks that nobody sampled says nothing of it."""
    assert "Where the time of tasks went" not in Elements(render(period())).text()


def test_names_in_a_profile_are_text():
    """Names of functions and files are text, whatever is in them."""
    tags = Elements(render(sampled([((HOSTILE,), 1)], HOSTILE))).tags

    assert "img" not in tags
    assert tags.count("script") == Elements(render(period())).tags.count("script")


def test_a_profile_in_a_report_is_bounded():
    """However much was seen, the page grows by a bounded part."""
    stacks = [((f"{'n' * 300}{a}", f"{'n' * 300}{b}"), 1) for a in range(60) for b in range(20)]
    grown = len(render(sampled(stacks))) - len(render(sampled([(("g",), 1)])))

    assert 0 < grown < 2_000_000


def test_a_base_is_compared_with():
    """A page that has a base says how the period differs from it; its name may be anything."""
    page = Elements(render(period(), (f"monday{HOSTILE}.rec", period("load"))))

    text = page.text()
    assert "Compared with monday" in text
    assert "img" not in page.tags
    assert re.search(r"tasks done 1,\d+ 1,\d+ same", text)
    assert "Compared with" not in Elements(render(period())).text()
