"""Log records of tasks, brought to the loggers of the client's process."""

from __future__ import annotations

import gc
import json
import logging
import logging.handlers
import os
import threading
import time
from typing import Any

import pytest

from scaler_cluster.runtime import records
from scaler_exec import Client, ScalerExecutor, SchedulerClusterCombo
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, wait_gone, wait_until

log = logging.getLogger("tests.task")


class Keeper(logging.Handler):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.records.append(record)

    def texts(self) -> list[str]:
        """Return what the records say."""
        return [record.getMessage() for record in self.records]

    def wait_for(self, count: int) -> None:
        """Wait until so many have come: a thread that hands them on may be slower than a result."""
        wait_until(lambda: len(self.records) >= count, "records are missing")


@pytest.fixture
def kept():
    """Return a handler of this process's root logger, which lets INFO through."""
    root, handler = logging.getLogger(), Keeper()
    level = root.level
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


def _log(*texts: str) -> None:
    for text in texts:
        log.info(text)


def _log_and_fail(text: str) -> None:
    try:
        tasks.fail("raise")
    except ValueError:
        log.exception("%s", text, extra={"job": 7, "where": ["a", "b"]})
        raise


def test_records_come_to_the_logger_of_the_same_name_before_the_result(make_executor, kept) -> None:
    """When a result is there, what its task logged has been handled here."""
    executor = make_executor(2, forward_logs=True)
    for n in range(20):
        executor.submit(_log, f"{n}").result(BOUND_S)
        assert kept.texts()[-1] == f"{n}"

    assert {record.name for record in kept.records} == {"tests.task"}


def test_a_record_tells_where_and_when_it_was_made(make_executor, kept) -> None:
    """Also of a task that raises: level, place, process, traceback, and what was added."""
    before = time.time()
    executor = make_executor(1, forward_logs=True)
    with pytest.raises((TypeError, ValueError), match="on purpose"):
        executor.submit(_log_and_fail, "went wrong").result(BOUND_S)
    (record,) = kept.records

    assert (record.levelno, record.levelname) == (logging.ERROR, "ERROR")
    assert record.getMessage() == "went wrong"
    assert record.funcName == "_log_and_fail"
    assert record.pathname == __file__
    assert record.processName == "Worker-0"
    assert record.process != os.getpid()
    assert before <= record.created <= time.time()
    assert "ValueError: raised on purpose" in logging.Formatter().format(record)
    assert (record.job, record.where) == (7, "['a', 'b']")  # type: ignore[attr-defined]


def test_levels_hold_on_both_sides(make_executor, kept) -> None:
    """A worker sends from the given level on, and this process's loggers choose among that."""
    executor = make_executor(1, forward_logs=True)
    executor.submit(log.debug, "less than this process's root logger wants").result(BOUND_S)
    executor = make_executor(1, forward_logs="DEBUG")
    executor.submit(log.debug, "sent, and not wanted here").result(BOUND_S)
    logging.getLogger("tests.task").setLevel(logging.DEBUG)
    try:
        executor.submit(log.debug, "wanted").result(BOUND_S)
    finally:
        logging.getLogger("tests.task").setLevel(logging.NOTSET)

    assert kept.texts() == ["wanted"]


def test_other_tasks_log_as_ever(kept, capfd) -> None:
    """Without the option nothing comes, and with it a worker's loggers are as before afterwards."""
    with ScalerExecutor(1, forward_logs=True) as executor:
        executor.submit(_log, "sent").result(BOUND_S)
        with Client(executor.address) as other:
            found = other.submit(_state).result(BOUND_S)
            other.submit(log.warning, "stays there").result(BOUND_S)

    assert found == (logging.WARNING, [])
    assert kept.texts() == ["sent"]
    assert capfd.readouterr().err == "stays there\n"


def _state() -> tuple[int, list[str]]:
    root = logging.getLogger()
    return root.level, list(map(str, root.handlers))


def test_a_level_that_a_task_sets_is_kept(make_executor, kept) -> None:
    """As it is without the option."""
    executor = make_executor(1, forward_logs=True)
    executor.submit(logging.getLogger().setLevel, logging.ERROR).result(BOUND_S)
    executor.submit(_log, "still sent").result(BOUND_S)

    assert executor.submit(_root_level).result(BOUND_S) == logging.INFO
    assert kept.texts() == ["still sent"]
    with Client(executor.address) as other:
        assert other.submit(_root_level).result(BOUND_S) == logging.ERROR


def _root_level() -> int:
    return logging.getLogger().level


@pytest.mark.parametrize("level", [0, -5, "LOUD", None, 2.5])
def test_a_level_that_is_none_is_refused(level: Any) -> None:
    """At the call, by a sentence that says what is taken."""
    for make in (ScalerExecutor, Client):
        with pytest.raises(
            (TypeError, ValueError), match="forward_logs must be True, False, or a level"
        ):
            make(forward_logs=level)


def test_a_client_has_it_as_well(kept) -> None:
    """For single tasks, maps and graphs, from threads of tasks too."""
    with (
        SchedulerClusterCombo(2) as cluster,
        Client(cluster.get_address(), forward_logs=logging.INFO) as client,
    ):
        client.submit(_log_in_thread, "thread").result(BOUND_S)
        client.map(_log, [f"map {n}" for n in range(20)])
        client.get({"text": "node", "a": (_log, "text"), "b": (_after, "a")}, ["b"])
    texts = kept.texts()

    assert texts[0] == "thread"
    assert sorted(texts[1:21]) == sorted(f"map {n}" for n in range(20))
    assert texts[21:] == ["node", "next node"]


def _log_in_thread(text: str) -> None:
    thread = threading.Thread(target=_log, args=(text,))
    thread.start()
    thread.join()


def _after(_: object) -> None:
    log.info("next node")


def test_what_nested_tasks_log_comes_to_the_same_place(make_executor, kept, flags) -> None:
    """Whether a task runs on the stack of the one that waits for it, or elsewhere."""
    executor = make_executor(2, forward_logs=True)
    pid, others = executor.submit(_nest, flags.path("there")).result(BOUND_S)

    assert pid == others[0] != others[1]
    assert kept.texts() == ["below", "elsewhere", "above"]
    assert len({record.process for record in kept.records}) == 2


def _nest(path: str) -> tuple[int, list[int]]:
    executor = ScalerExecutor()
    here = executor.submit(_log_pid, "below").result()
    there = executor.submit(_log_pid, "elsewhere", path)
    # It is not waited for before it has started.
    while not os.path.exists(path):
        time.sleep(0.005)
    pids = [here, there.result()]
    _log("above")
    return os.getpid(), pids


def _log_pid(text: str, path: str = "") -> int:
    if path:
        with open(path, "w"):
            pass
    _log(text)
    return os.getpid()


def test_what_nested_tasks_print_comes_along_as_well(make_executor, flags, capsys) -> None:
    """With stream_output=True, though the nested executor was not told."""
    executor = make_executor(2, stream_output=True)
    executor.submit(_nest_printing, flags.path("there")).result(BOUND_S)

    assert capsys.readouterr().out == "printed elsewhere\n"


def _nest_printing(path: str) -> None:
    there = ScalerExecutor().submit(_print, path)
    while not os.path.exists(path):
        time.sleep(0.005)
    there.result()


def _print(path: str) -> None:
    with open(path, "w"):
        pass
    print("printed elsewhere")


def test_a_task_that_logs_much_arrives_whole(make_executor, kept) -> None:
    """As many lines as it likes, in order, by several threads."""
    executor = make_executor(1, forward_logs=True)
    executor.submit(_log_much, 4, 5_000).result(4 * BOUND_S)
    kept.wait_for(20_000)
    texts = kept.texts()

    assert len(texts) == 20_000
    for thread in range(4):
        own = [text for text in texts if text.startswith(f"{thread} ")]
        assert own == [f"{thread} {n}" for n in range(5_000)]


def _log_much(threads: int, lines: int) -> None:
    def talk(thread: int) -> None:
        for n in range(lines):
            log.info("%d %d", thread, n)

    running = [threading.Thread(target=talk, args=(n,)) for n in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join()


def test_a_finalizer_may_log_at_any_time(make_executor, kept) -> None:
    """Also one that the garbage collector calls while the worker itself is speaking."""
    executor = make_executor(1, forward_logs=True)
    count = executor.submit(_drop_much, 3_000).result(4 * BOUND_S)
    kept.wait_for(6_000)

    assert kept.texts().count("dropped") == count == 3_000
    assert kept.texts().count("kept") == 3_000


class _Dropped:
    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        log.info("dropped")


def _drop_much(count: int) -> int:
    threshold = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        for _ in range(count):
            _Dropped()
            log.info("kept")
    finally:
        gc.set_threshold(*threshold)
        gc.collect()
    return count


def test_a_huge_record_is_cut(make_executor, kept, monkeypatch) -> None:
    """It is no reason to lose it, or the worker."""
    # Not for pytest, which cannot report such texts.
    monkeypatch.setattr(log, "propagate", False)
    monkeypatch.setattr(log, "handlers", [kept])
    executor = make_executor(1, forward_logs=True)
    text = "\0é" * 1_000_000
    executor.submit(log.info, text).result(BOUND_S)
    many = {f"attribute_{n}": text for n in range(20)}
    executor.submit(log.info, text, extra=many).result(BOUND_S)
    executor.submit(log.info, "name \udc80").result(BOUND_S)

    assert kept.texts() == [text[:100_000], text[:1_000], "name \udc80"]


def test_a_forked_child_of_a_task_keeps_its_records_to_itself(kept, capfd) -> None:
    """They are written to the worker's stderr, as what it prints is to its stdout."""
    with ScalerExecutor(1, forward_logs=True) as executor:
        assert executor.submit(_fork_and_log).result(BOUND_S) == 0

    assert kept.texts() == ["parent"]
    assert capfd.readouterr().err == "child\n"


def _fork_and_log() -> int:
    pid = os.fork()
    if not pid:
        log.warning("child")
        os._exit(0)
    log.info("parent")
    return os.waitpid(pid, 0)[1]


def test_a_cancelled_task_leaves_no_handler_behind(make_executor, kept, flags) -> None:
    """What it logged so far has come, and the worker's loggers are as before."""
    executor = make_executor(1, forward_logs=True)
    future = executor.submit(_log_for_ever, flags.path("begun"))
    pid = flags.wait("begun")
    future.cancel()
    with Client(executor.address) as other:
        found = other.submit(_state).result(BOUND_S)
        now = other.submit(os.getpid).result(BOUND_S)

    assert found == (logging.WARNING, [])
    assert "again" in kept.texts()
    if now != pid:
        wait_gone(pid)


def test_a_task_may_be_cancelled_before_it_has_begun(kept, flags, capfd) -> None:
    """While its arguments are unpickled nothing is forwarded yet, and nothing is to be put back."""
    with ScalerExecutor(1, forward_logs=True, stream_output=True) as executor:
        future = executor.submit(_log, _Endless(flags.path("begun")))  # type: ignore[arg-type]
        flags.wait("begun")
        future.cancel()
        executor.submit(_log, "next").result(BOUND_S)

    assert kept.texts() == ["next"]
    assert "Traceback" not in capfd.readouterr().err


class _Endless:
    """Takes for ever to be unpickled."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return _log_for_ever, (self._path,)


def _log_for_ever(path: str) -> None:
    log.info("again")
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    while True:
        log.info("again")


def test_an_attribute_that_cannot_be_shown_costs_its_record_alone(make_executor, kept) -> None:
    """As a handler of logging does, it is told on the worker's stderr; the task goes on."""
    executor = make_executor(1, forward_logs=True)
    executor.submit(_log_badly).result(BOUND_S)

    assert kept.texts() == ["fine"]


class _Shy:
    def __str__(self) -> str:
        raise ValueError("no text")


def _log_badly() -> None:
    log.info("bad", extra={"shy": _Shy()})
    log.info("fine")


def test_records_survive_the_way_whatever_they_hold() -> None:
    """A record with arguments is formatted where it was made."""
    record = logging.LogRecord("a", 25, "/x.py", 3, "%s of %d", ("one", 2), None, "f")
    fields = json.loads(records._to_text(record))
    made = logging.makeLogRecord(fields)

    assert made.getMessage() == "one of 2"
    assert (made.name, made.levelno, made.lineno, made.module) == ("a", 25, 3, "x")
