"""How processes and machines are."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from scaler_cluster.runtime import control_groups, vitals
from scaler_cluster.runtime.vitals import BASELINE_S, FRESH_S, Examiner, Memory
from scaler_cluster.wire import messages as m
from tests.runtime.helpers import wait_until

NOW = 1000.0


@pytest.fixture
def at(monkeypatch):
    """Let it be NOW, until a test sets the time."""
    times = [NOW]
    monkeypatch.setattr(vitals, "clock", lambda: times[0])
    return times


def test_a_process_is_measured():
    """A process's resident set and CPU time are those that the system tells the process itself."""
    start = time.process_time()
    while time.process_time() - start < 0.1:
        pass
    pages = int(Path("/proc/self/statm").read_text().split()[1])

    assert vitals.rss_bytes(os.getpid()) == pytest.approx(pages * mmap.PAGESIZE, rel=0.2)
    assert vitals.cpu_seconds(os.getpid()) == pytest.approx(time.process_time(), abs=0.5)
    assert vitals.machine_cpu_seconds() > vitals.cpu_seconds(os.getpid())


def test_the_machine_is_not_busy_while_it_idles(monkeypatch):
    """The time in which CPUs idle, or wait for a disk, is not counted, and no time is twice."""
    # user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice
    times = type(psutil.cpu_times())(1, 2, 4, 1000, 1000, 8, 16, 32, 1, 2)
    monkeypatch.setattr(psutil, "cpu_times", lambda: times)

    assert vitals.machine_cpu_seconds() == 63


def test_a_process_that_is_gone_has_nothing():
    """A process that has ended has no figures, and reading them fails nothing."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert (vitals.rss_bytes(ended.pid), vitals.cpu_seconds(ended.pid)) == (0, 0.0)


def test_a_process_that_ends_between_two_looks_has_nothing():
    """A process that was looked at before it ended has no figures afterwards."""
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    before = vitals.rss_bytes(running.pid)
    running.communicate(b"\n")

    assert before > 0
    assert (vitals.rss_bytes(running.pid), vitals.cpu_seconds(running.pid)) == (0, 0.0)


def test_a_name_with_parentheses_is_no_trap(tmp_path):
    """Parentheses and spaces in a process's name do not shift its figures."""
    program = tmp_path / "a) b (c 1 2"
    program.symlink_to(sys.executable)
    running = subprocess.Popen([str(program), "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert 0 <= vitals.cpu_seconds(running.pid) < 60
    finally:
        running.communicate(b"\n")


def test_the_machine_has_memory():
    """A machine's memory is what psutil sees, unless a control group allows less."""
    total, free = Memory().total_and_free()

    assert 0 < free < total <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("line", "root", "files", "expected"),
    [
        (
            "0::/outer/inner",
            "",
            {"outer/memory.max": "1000000", "outer/memory.current": "700000",
             "outer/memory.stat": "anon 5\ninactive_file 200000\n",
             "outer/inner/memory.max": "max", "outer/inner/memory.current": "5"},
            (1_000_000, 500_000),
        ),
        (
            "4:cpu,memory:/job",
            "memory",
            {"job/memory.limit_in_bytes": "3000000", "job/memory.usage_in_bytes": "1000000",
             "job/memory.stat": "total_inactive_file 0\n"},
            (3_000_000, 2_000_000),
        ),
    ],
)  # fmt: skip
def test_control_groups_allow_less(monkeypatch, tmp_path, line, root, files, expected):
    """The tightest control group counts, without the file cache."""
    for name, text in files.items():
        path = tmp_path / root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(control_groups, "GROUPS", tmp_path)
    monkeypatch.setattr(control_groups, "read", lambda _: line.encode())

    assert Memory().total_and_free() == expected


def test_the_first_answer_takes_a_moment(at):
    """The first answer waits a moment to measure; later ones go on from the one before."""
    examiner = Examiner(lambda: {b"W1": os.getpid()}, 5_000_000_000)
    examiner.ask(m.Examine(5.0), NOW)
    first_due = examiner.due
    at[0] = NOW + BASELINE_S
    answer = examiner.answer(3)
    examiner.ask(m.Examine(6.0), NOW + 1.0)

    assert first_due == NOW + BASELINE_S
    assert examiner.due == NOW + 1.0
    assert (answer.sent_at, answer.cpus, answer.workers) == (5.0, os.cpu_count(), (b"W1",))
    assert answer.worker_rss_bytes[0] > 1_000_000
    assert answer.agent_rss_bytes > 1_000_000
    assert (answer.memory_limit_bytes, answer.restarts) == (5_000_000_000, 3)


def test_what_was_measured_long_ago_is_measured_anew(at):
    """A measurement of long ago is made anew, as a mean over that time would say nothing."""
    examiner = Examiner(dict)
    examiner.ask(m.Examine(5.0), NOW)
    examiner.answer(0)
    at[0] = later = NOW + 2 * FRESH_S
    examiner.ask(m.Examine(6.0), later)

    assert examiner.due == later + BASELINE_S


def test_how_busy_is_counted_in_thousandths(monkeypatch, at):
    """CPU use is counted in thousandths of one CPU since the last look, or the start."""
    used = {1: 10.0, 2: 0.5}
    monkeypatch.setattr(vitals, "cpu_seconds", used.__getitem__)
    monkeypatch.setattr(vitals, "rss_bytes", lambda pid: 7)
    processes = {b"W1": 1}
    examiner = Examiner(lambda: dict(processes))
    examiner.ask(m.Examine(5.0), NOW)
    used[1] += 0.125
    processes[b"W2"] = 2

    at[0] = NOW + BASELINE_S
    answer = examiner.answer(0)
    assert answer.workers == (b"W1", b"W2")
    assert answer.worker_cpu_milli == (500, 2000)
    assert answer.worker_rss_bytes == (7, 7)


def test_an_answer_that_is_late_does_not_count_more(monkeypatch, at):
    """What was used while the supervisor did something else is divided by that time as well."""
    used = [10.0]
    monkeypatch.setattr(vitals, "machine_cpu_seconds", lambda: used[0])
    examiner = Examiner(dict)
    examiner.ask(m.Examine(5.0), NOW)
    # The turn in which it is due takes long.
    at[0] += BASELINE_S + 4.0
    used[0] += 2 * (BASELINE_S + 4.0)

    assert examiner.answer(0).cpu_milli == 2000


def test_without_control_groups_a_machine_has_all_its_memory(monkeypatch):
    """Without control groups, as elsewhere than on Linux, the answer says what psutil sees."""
    monkeypatch.setattr(control_groups, "read", lambda path: b"")
    examiner = Examiner(lambda: {b"W1": os.getpid()})
    examiner.ask(m.Examine(5.0), NOW)

    answer = examiner.answer(0)
    seen = psutil.virtual_memory()
    assert answer.memory_bytes == seen.total
    assert answer.free_bytes == pytest.approx(seen.available, rel=0.5)
    assert answer.worker_rss_bytes[0] > 1_000_000


def test_a_process_of_somebody_else_has_nothing(monkeypatch):
    """A process that the system tells nothing of has no figures, and nothing fails."""

    def refuse(process):
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "memory_info", refuse)
    monkeypatch.setattr(psutil.Process, "cpu_times", refuse)

    assert (vitals.rss_bytes(os.getpid()), vitals.cpu_seconds(os.getpid())) == (0, 0.0)


def test_a_family_is_counted_together(tmp_path) -> None:
    """The CPU time of a process includes that of its descendants, and of no other process."""
    go = tmp_path / "go"
    work = (
        "import pathlib, subprocess, sys, time\n"
        f"go = pathlib.Path({str(go)!r})\n"
        "if sys.argv[1:]:\n"
        "    while not go.exists(): time.perf_counter()\n"
        "else: subprocess.run([sys.executable, sys.argv[0], 'spin'], start_new_session=True)\n"
    )
    script = tmp_path / "work.py"
    script.write_text(work)
    parent = subprocess.Popen([sys.executable, str(script)])
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        pids = parent.pid, other.pid

        def works() -> bool:
            active = vitals.family_activity(pids)
            (used_s, is_running), other_s = active[parent.pid], active[other.pid][0]
            return is_running and used_s > other_s + 0.5

        wait_until(works, "the grandchild is not counted")
        assert vitals.family_activity((1 << 30,)) == {1 << 30: (0.0, False)}
    finally:
        go.touch()
        parent.wait()
        other.communicate()
