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

from scaler_cluster.process import log_records
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
    """Log records of a task are handled in the client before its result is there."""
    executor = make_executor(2, forward_logs=True)
    for n in range(20):
        executor.submit(_log, f"{n}").result(BOUND_S)
        assert kept.texts()[-1] == f"{n}"

    assert {record.name for record in kept.records} == {"tests.task"}


def test_a_record_tells_where_and_when_it_was_made(make_executor, kept) -> None:
    """A record keeps level, place, process, traceback and extras, also if its task raises."""
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
    """A worker sends records from the given level on, of which the client's loggers choose."""
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
    """Without the option no records come, and afterwards the worker's loggers are as before."""
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
    """A logger's level that a task sets is kept, as it is without the option."""
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
    """A wrong level is refused at the call, with what is taken."""
    for make in (ScalerExecutor, Client):
        with pytest.raises(
            (TypeError, ValueError), match="forward_logs must be True, False, or a level"
        ):
            make(forward_logs=level)


def test_a_client_has_it_as_well(kept) -> None:
    """A client forwards logs of single tasks, maps, graphs and threads of tasks."""
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
    """Nested tasks' records come to the client from the waiting worker and from others."""
    executor = make_executor(2, forward_logs=True)
    held = executor.submit(tasks.hold, flags.path("held"), flags.path("go"))
    flags.wait("held")
    pid, others = executor.submit(_nest, flags.path("there"), flags.path("go")).result(BOUND_S)
    held.result(BOUND_S)

    assert pid != others[1]
    assert kept.texts() == ["below", "elsewhere", "above"]
    assert [record.process for record in kept.records] == [*others, pid]


def _nest(path: str, go: str) -> tuple[int, list[int]]:
    executor = ScalerExecutor()
    # The other worker is busy for so long: it runs here, or on a spare worker if this one is slow.
    here = executor.submit(_log_pid, "below").result()
    tasks.announce(go)
    there = executor.submit(_log_pid, "elsewhere", path)
    # It is not waited for before it has started.
    tasks.wait_for(path)
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
    """Nested tasks' output comes along with stream_output=True of the outer executor."""
    executor = make_executor(2, stream_output=True)
    executor.submit(_nest_printing, flags.path("there")).result(BOUND_S)

    assert capsys.readouterr().out == "printed elsewhere\n"


def _nest_printing(path: str) -> None:
    there = ScalerExecutor().submit(_print, path)
    tasks.wait_for(path)
    there.result()


def _print(path: str) -> None:
    with open(path, "w"):
        pass
    print("printed elsewhere")


def test_a_task_that_logs_much_arrives_whole(make_executor, kept) -> None:
    """Thousands of records of several threads arrive whole and in order."""
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
    """A finalizer may log, even while the worker itself is sending."""
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
    """A huge record is cut, and neither it nor the worker is lost."""
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
    """A forked child's records go to the worker's stderr, not to the client."""
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
    """The records of a cancelled task have come, and its worker's loggers are as before."""
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
    """A task that is cancelled while its arguments are unpickled leaves nothing to put back."""
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
    """A record that cannot be shown is told on the worker's stderr; the task goes on."""
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
    fields = json.loads(log_records._to_text(record))
    made = logging.makeLogRecord(fields)

    assert made.getMessage() == "one of 2"
    assert (made.name, made.levelno, made.lineno, made.module) == ("a", 25, 3, "x")
