"""What tasks print and log, while a monitor listens: its lines, and that nothing else changes."""

from __future__ import annotations

import itertools
import logging
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.worker.worker import WorkerCore
from scaler_cluster.errors import TaskInterrupted
from scaler_cluster.ids import LOGS
from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_cluster.runtime import log_tail
from scaler_cluster.runtime.log_lines import CUT_CHARS, OPEN_S, LineMaker, Piece
from scaler_cluster.runtime.log_tail import LogTail
from scaler_cluster.runtime.task_interrupts import INTERRUPT_SIGNAL, TaskInterrupts
from scaler_cluster.texts import LINE_CHARS_MAX, LINES_MAX
from scaler_cluster.wire import messages as m
from scaler_exec import ScalerExecutor
from scaler_monitoring.feed import Feed
from scaler_monitoring.last_lines import LastLines
from tests.runtime.helpers import BOUND_S, wait_workers


def piece(text, *, at=100.0, task=0, source="stdout", level=0, thread=1):
    return Piece(at, 1, task, b"f", source, level, thread, text)


def made(*pieces, dropped=0, now=100.0):
    return LineMaker().make(pieces, dropped, LINES_MAX, now)


# -- lines of pieces ---------------------------------------------------------------------------


def test_pieces_become_lines():
    """A print writes its text and the end of its line by themselves; that is one line."""
    answer = made(piece("a"), piece("\n"), piece("b\nc\n"), piece("open"))

    assert answer.texts == ("a", "b", "c")


def test_threads_and_streams_do_not_mix():
    """What two threads write at a time, or one to two streams, are lines of their own."""
    answer = made(
        piece("a"), piece("b", thread=2), piece("c", source="stderr"),
        piece("\n", thread=2), piece("\n"), piece("\n", source="stderr"),
    )  # fmt: skip

    assert list(zip(answer.sources, answer.texts, strict=True)) == [
        ("stdout", "b"), ("stdout", "a"), ("stderr", "c"),
    ]  # fmt: skip


def test_a_line_ends_with_its_task():
    """What a task left open is not glued to what the next one prints."""
    answer = made(piece("of 0"), piece("of 1\n", task=1))

    assert list(zip(answer.tasks, answer.texts, strict=True)) == [(0, "of 0"), (1, "of 1")]


def test_a_line_without_an_end_is_told_after_a_while():
    """A progress bar is told as a screen would show it, once it has been there for a second."""
    maker = LineMaker()
    assert maker.make([piece("\r10 %"), piece("\r20 %"), piece("\r")], 0, 9, 100.0) is None

    answer = maker.make([], 0, 9, 100.0 + OPEN_S)
    assert answer is not None
    assert (answer.texts, answer.ages_ms) == (("20 %",), (1000,))
    assert maker.make([], 0, 9, 105.0) is None


def test_long_lines_are_cut_and_say_so():
    """The rest of a long line is counted, in one piece or in many, and of a record as well."""
    for pieces in ([piece("x" * 5000 + "\n")], [piece("x" * 500)] * 10 + [piece("\n")],
                   [piece("x" * 5000, level=30, source="mod")]):  # fmt: skip
        (text,) = made(*pieces).texts
        assert len(text) <= LINE_CHARS_MAX
        assert text == "x" * CUT_CHARS + f" … {5000 - CUT_CHARS:,} characters more"


def test_the_last_lines_are_kept_and_the_others_counted():
    """Of too many lines the last ones are told, with how many came before them."""
    answer = made(*(piece(f"{n}\n") for n in range(LINES_MAX + 10)), dropped=5)

    assert (answer.texts[0], answer.texts[-1]) == ("10", str(LINES_MAX + 9))
    assert (len(answer.texts), answer.dropped) == (LINES_MAX, 15)


def test_what_is_written_at_once_may_be_long(tail):
    """Of a long text the last lines are told, each cut, and all others counted."""
    _, ask = tail
    sys.stdout.write("first\n" * LINES_MAX + "y" * 2_000_000 + "\n" + "last\n" * (LINES_MAX - 1))
    answer = ask()

    assert (len(answer.texts), answer.dropped) == (LINES_MAX, LINES_MAX)
    assert answer.texts[0].endswith(f"y … {2_000_000 - CUT_CHARS:,} characters more")
    assert answer.texts[1] == answer.texts[-1] == "last"


@given(st.text(alphabet="ab\n", max_size=200), st.lists(st.integers(0, 200)))
def test_any_pieces_make_the_same_lines(text, cuts):
    """However a text is cut into pieces, it makes the lines that it has."""
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [piece(text[low:high]) for low, high in itertools.pairwise(places)]
    answer = made(*pieces)

    assert text.split("\n")[:-1] == (list(answer.texts) if answer is not None else [])


# -- in this process -----------------------------------------------------------------------------


@pytest.fixture
def tail():
    """Return what listens to this process, and a function that returns what it says."""
    core = WorkerCore()
    one = LogTail(core)

    def ask():
        one.ask(m.TailLogs(60.0, LINES_MAX))
        (answer,) = core.take_actions() or [m.LogLines()]
        return answer

    ask()
    yield one, ask
    one.stop()


def test_streams_and_handlers_stay_what_they_are(capsys, tail):
    """Prints go where they went, no handler is added, and nothing is left in the end."""
    one, ask = tail
    # pytest gives the streams anew after the fixtures.
    one.stop()
    ask()
    assert logging.getLogger("mod").handlers == []
    print("to stdout")
    print("to stderr", file=sys.stderr)
    sys.stdout.writelines(["a\n", "b\n"])
    answer = ask()
    one.stop()
    print("untold")

    assert list(zip(answer.sources, answer.texts, strict=True)) == [
        ("stdout", "to stdout"), ("stderr", "to stderr"), ("stdout", "a"), ("stdout", "b"),
    ]  # fmt: skip
    assert capsys.readouterr() == ("to stdout\na\nb\nuntold\n", "to stderr\n")
    assert "write" not in vars(sys.stdout)
    assert logging.Logger.callHandlers.__module__ == "logging"


def test_a_record_is_told_once(tail):
    """A record comes with its traceback; what a handler prints of it is not told again."""
    _, ask = tail
    handler = logging.StreamHandler(sys.stderr)
    logger = logging.getLogger("mod")
    logger.addHandler(handler)
    try:
        try:
            raise KeyError("k")
        except KeyError:
            logger.exception("careful %d", 1)
        logger.debug("below the level of the logger")
    finally:
        logger.removeHandler(handler)
    answer = ask()

    assert (answer.sources, answer.levels) == (("mod",), (logging.ERROR,))
    first, *others = answer.texts[0].splitlines()
    assert (first, others[-1]) == ("careful 1", "KeyError: 'k'")


def test_a_flood_is_bounded_and_counted(tail, monkeypatch):
    """What waits for the next question has a bound; the first lines are dropped, and counted."""
    monkeypatch.setattr(log_tail, "CHARS_MAX", 1000)
    monkeypatch.setattr(log_tail, "PIECE_CHARS", 0)
    _, ask = tail
    for n in range(500):
        sys.stdout.write(f"{n:09}\n")
    answer = ask()

    assert (len(answer.texts), answer.dropped) == (100, 400)
    assert answer.texts[-1] == f"{499:09}"


def test_what_libraries_put_there_stays(tail, monkeypatch):
    """What replaced a method before somebody listened, or does so meanwhile, is there afterwards."""
    one, ask = tail
    one.stop()
    said: list[object] = []
    stream = sys.stderr

    def put(owner, name):
        """Put a method of a library in the place of another one, which it calls."""
        inner = getattr(owner, name)

        def method(*args):
            said.append(name)
            return inner(*args)

        monkeypatch.setattr(owner, name, method)
        return method

    write = put(stream, "write")
    ask()
    call_handlers = put(logging.Logger, "callHandlers")
    stream.write("a")
    one.stop()
    assert vars(stream)["write"] is write
    assert logging.Logger.callHandlers is call_handlers

    ask()
    logging.getLogger("mod").warning("b")
    assert ask().texts == ("b",)
    one.stop()
    assert logging.Logger.callHandlers is call_handlers
    assert said[:2] == ["write", "callHandlers"]


def test_a_thread_that_prints_holds_nobody_up(tail):
    """Whoever adds a line may wait for the worker's lock; who has that one goes on meanwhile."""
    one, ask = tail
    print("before")
    with ThreadPoolExecutor(1) as executor, one._turn:
        assert executor.submit(ask).result(BOUND_S).texts == ()
        assert executor.submit(print, "lost").result(BOUND_S) is None
        executor.submit(one.stop).result(BOUND_S)
    answer = ask()

    assert (answer.texts, answer.dropped) == (("before",), 1)


def send_itself(number):
    """Send a signal to this process, whose handler is called before this returns."""
    signal.raise_signal(number)
    return 1


def test_an_interrupted_task_takes_no_turn_with_it(tail, monkeypatch):
    """An interrupt that comes while a line is added waits: it would leave the lock taken."""
    one, ask = tail
    work = SimpleNamespace(
        session=1, task=0, first=0, cursor=0, message=SimpleNamespace(function=b"f")
    )
    one._core.queue.append(work)
    one._core.interrupt = 1, 0
    handler = signal.getsignal(INTERRUPT_SIGNAL)
    interrupts = TaskInterrupts(one._core)
    try:
        interrupts.in_task = True
        with monkeypatch.context() as patch:
            patch.setattr(log_tail, "get_ident", partial(send_itself, INTERRUPT_SIGNAL))
            one._add("stdout", 0, "whole\n")
        with pytest.raises(TaskInterrupted):
            signal.raise_signal(INTERRUPT_SIGNAL)
    finally:
        signal.signal(INTERRUPT_SIGNAL, handler)

    assert ask().texts == ("whole",)


def test_it_stops_by_itself(tail):
    """Once nobody has asked for a while, the next print ends it."""
    one, _ = tail
    one.ask(m.TailLogs(1e-9))
    time.sleep(0)
    print("nobody listens")

    assert "write" not in vars(sys.stdout)


# -- real processes ------------------------------------------------------------------------------


def alpha(gate, n):
    gate.touch()
    while gate.exists():
        time.sleep(0.01)
    print("alpha says", n)
    logging.getLogger("mod").warning("alpha warns of %d", n)


def beta(n):
    print("beta says", n, file=sys.stderr)
    return "write" in vars(sys.stdout) or logging.Logger.callHandlers.__module__ != "logging"


def test_lines_of_tasks_arrive_with_task_and_function(tmp_path):
    """Lines of two tasks arrive with what printed them, also of one that ran before somebody came.

    Before and after that, nothing listens in the workers.
    """
    cluster = EmbeddedCluster(2)
    try:
        wait_workers(2)
        with ScalerExecutor(address=cluster.address) as executor:
            # Not even the module is there, before this one brings it.
            is_there = f"{log_tail.__name__!r} in __import__('sys').modules"
            assert executor.submit(eval, is_there).result(BOUND_S) is False
            assert not any(executor.map(beta, range(20)))
            gate = tmp_path / "gate"
            running = executor.submit(alpha, gate, 1)
            with Feed(cluster.monitor_address, (LOGS,)) as feed:
                heard = LastLines()
                until(feed, heard, lambda: heard.is_heard)
                # Whoever printed has been asked once the second message is there.
                gate_seen(gate)
                for _ in range(3):
                    heard.apply(feed.next(BOUND_S))
                gate.unlink()
                running.result(BOUND_S)
                assert executor.submit(beta, 2).result(BOUND_S)
                until(feed, heard, lambda: len(heard.lines) >= 3)
            found = {line.text: line for line in heard.lines}
            deadline = time.monotonic() + BOUND_S
            while executor.submit(beta, 3).result(BOUND_S):
                assert time.monotonic() < deadline, "it listens still"
    finally:
        cluster.stop()

    assert found.keys() == {"alpha says 1", "alpha warns of 1", "beta says 2"}
    said, warned, other = (
        found[one] for one in ("alpha says 1", "alpha warns of 1", "beta says 2")
    )
    assert (said.function, said.source, said.level) == ("alpha", "stdout", 0)
    assert (warned.function, warned.source, warned.level) == ("alpha", "mod", logging.WARNING)
    assert (other.function, other.source) == ("beta", "stderr")
    assert said.session == other.session > 0
    assert other.task == said.task + 1 == warned.task + 1


def until(feed, heard, condition):
    """Take in what comes until a condition holds."""
    deadline = time.monotonic() + BOUND_S
    while not condition():
        message = feed.next(max(deadline - time.monotonic(), 0.0))
        assert message is not None, "nothing more comes"
        heard.apply(message)


def gate_seen(gate):
    deadline = time.monotonic() + BOUND_S
    while not gate.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
