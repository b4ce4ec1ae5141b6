"""What a worker notes of its task while it is asked, at moments that are made up."""

from __future__ import annotations

import math
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from scaler_cluster.call_tree import FUNCTIONS_MAX, unpacked
from scaler_cluster.runtime import sampler as module
from scaler_cluster.runtime.sampler import IDLE_S, NODES_MAX, Sampler
from scaler_cluster.wire import messages as m


class Bench:
    """A worker by hand, whose main thread is the one of the test."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        self.said: list[m.Sampled] = []
        self.is_busy = True
        self.looked = 0
        core: Any = SimpleNamespace(
            queue=deque([self.work(b"F")]),
            reports=SimpleNamespace(say=self.said.append, last_end=99.0),
        )
        self.core = core
        monkeypatch.setattr(module, "clock", lambda: self.now)
        self.sampler = Sampler(self, core, threading.get_ident())
        monkeypatch.setattr(self.sampler, "_codes", self._codes)
        self.stack = [self._codes.__code__, self.work.__code__]

    def work(self, function):
        return SimpleNamespace(session=1, task=7, message=SimpleNamespace(function=function))

    def _codes(self):
        self.looked += 1
        return self.stack

    def ask(self, for_s=3.0):
        self.sampler.ask(m.Sample(5, 0.02, for_s), self.now)

    def look_at(self, now):
        self.now = now
        self.sampler.look()

    def answer(self):
        self.sampler.answer([])
        return self.said.pop()


@pytest.fixture
def bench(monkeypatch):
    """Return a worker that runs a task of function F."""
    return Bench(monkeypatch)


def trees(answer):
    """Return the trees of an answer, by function."""
    found, start = {}, 0
    for function, size in zip(answer.functions, answer.sizes, strict=True):
        found[function] = unpacked(bytes(answer.trees)[start : start + size])
        start += size
    return found


def test_a_sample_counts_for_the_time_since_the_one_before(bench):
    """A look that comes late, as something held the interpreter, counts for all of that time."""
    bench.ask()
    for now in (100.0, 100.5, 102.0):
        bench.look_at(now)
    answer = bench.answer()
    (tree,) = trees(answer).values()

    assert (answer.number, answer.functions, answer.samples) == (5, (b"F",), (3,))
    assert tree.total_us == 20_000 + 500_000 + 1_500_000
    assert [one.name.rpartition(".")[2] for one in tree.frames[1:]] == ["_codes", "work"]
    assert (answer.session, answer.task, answer.runs, answer.age_s) == (1, 7, b"F", 3.0)


def test_looks_are_random_around_the_period(bench):
    """Looks follow each other after half the period to one and a half: tasks may have a rhythm."""
    bench.ask(for_s=1e9)
    pauses = set()
    for _ in range(200):
        bench.look_at(bench.sampler.due)
        pauses.add(bench.sampler.due - bench.now)

    assert 0.01 <= min(pauses) < max(pauses) <= 0.03 + 1e-9
    assert len(pauses) > 100


def test_who_is_not_asked_any_more_looks_no_more(bench):
    """After the time that it was asked for nothing is looked at, and nothing kept."""
    bench.ask()
    bench.look_at(100.0)
    bench.look_at(103.0)

    assert (bench.sampler.due, bench.looked) == (math.inf, 1)
    assert bench.answer().functions == ()
    bench.now = 200.0
    bench.ask()
    bench.look_at(200.0)
    assert next(iter(trees(bench.answer()).values())).total_us == 20_000


def test_without_a_task_it_only_looks_whether_there_is_one(bench):
    """An idle worker answers at once, reads no stack, and counts none of that time."""
    bench.is_busy = False
    bench.ask()
    (answer,) = bench.said
    bench.look_at(100.0)
    assert (answer.session, answer.functions) == (0, ())
    assert (bench.looked, bench.sampler.due) == (0, 100.0 + IDLE_S)
    bench.is_busy = True
    bench.ask()
    bench.look_at(102.0)
    assert next(iter(trees(bench.answer()).values())).total_us == 20_000


def test_functions_and_calls_are_bounded(bench):
    """Functions beyond a bound share one tree, and each tree has a bound."""
    bench.ask(for_s=1e9)
    for number in range(2 * FUNCTIONS_MAX):
        bench.core.queue[0] = bench.work(b"%d" % number)
        bench.look_at(bench.now + 1.0)
    answer = bench.answer()
    assert (len(answer.functions), answer.functions[-1]) == (FUNCTIONS_MAX, b"")
    assert sum(answer.samples) == 2 * FUNCTIONS_MAX
    code = self_code()
    for line in range(2 * NODES_MAX):
        bench.stack = [code.replace(co_firstlineno=line + 1)]
        bench.look_at(bench.now + 1.0)
    bench.ask(for_s=1e9)
    (tree,) = trees(bench.answer()).values()

    assert len(tree) == NODES_MAX
    assert tree.total_us == 2 * NODES_MAX * 1_000_000


def self_code():
    return trees.__code__
