"""What tasks print."""

from __future__ import annotations

import re
import sys
import threading

import pytest

from scaler_exec import ScalerExecutor
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, wait_until


def test_what_a_task_prints_comes_to_the_client(make_executor, capsys) -> None:
    """With stream_output=True a task's stdout and stderr come out of the client's."""
    executor = make_executor(1, stream_output=True)
    executor.submit(tasks.print_both, "to stdout", "to stderr").result(BOUND_S)
    captured = capsys.readouterr()

    assert captured.out == "to stdout\n"
    assert captured.err == "to stderr\n"


def test_output_comes_before_the_result(make_executor, capsys) -> None:
    """When a result is there, what its task printed has been printed here."""
    executor = make_executor(2, stream_output=True)
    for n in range(20):
        executor.submit(print, n).result(BOUND_S)
        assert capsys.readouterr().out == f"{n}\n"


def test_the_output_of_a_map_comes_to_the_client(make_executor, capsys) -> None:
    """Every call of a map has its output streamed."""
    executor = make_executor(2, stream_output=True)
    list(executor.map(print, range(50)))

    assert sorted(map(int, capsys.readouterr().out.split())) == list(range(50))


def test_output_before_an_exception_comes(make_executor, capsys) -> None:
    """A task that raises has its output streamed as well."""
    executor = make_executor(1, stream_output=True)
    with pytest.raises(ValueError, match="on purpose"):
        executor.submit(_print_and_fail).result(BOUND_S)

    assert capsys.readouterr().out == "before\n"


def _print_and_fail() -> None:
    print("before")
    tasks.fail("raise")


def test_text_that_utf_8_cannot_hold_is_written_out(make_executor, capsys) -> None:
    """Lone surrogates in streamed output are escaped."""
    executor = make_executor(1, stream_output=True)
    executor.submit(print, "name \udc80").result(BOUND_S)

    assert capsys.readouterr().out == "name \\udc80\n"


def test_printing_much_does_not_hang(make_executor, monkeypatch) -> None:
    """100 MB of streamed output arrive whole, and the task comes back."""
    counter = Counter()
    nbytes = 100_000_000
    monkeypatch.setattr("sys.stdout", counter)
    # On a busy machine most of it waits to be shown.
    monkeypatch.setattr("scaler_cluster.client.printing.WAITING_CHARS_MAX", nbytes)
    executor = make_executor(1, stream_output=True)

    assert executor.submit(tasks.print_much, nbytes).result(4 * BOUND_S) == nbytes
    assert counter.chars == nbytes


class Counter:
    """A stream that only counts."""

    chars = 0

    def write(self, text: str) -> int:
        self.chars += len(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing."""


def test_without_streaming_output_stays_in_the_worker(capfd) -> None:
    """By default what a task prints goes to the worker's own stdout, which is the client's."""
    with ScalerExecutor(1) as executor:
        executor.submit(print, "hello").result(BOUND_S)

    assert "hello\n" in capfd.readouterr().out


def test_a_stream_that_is_broken_here_breaks_nothing_else(make_executor, monkeypatch) -> None:
    """A client whose own stdout cannot be written to still gets its results."""

    class Broken:
        def write(self, text: str) -> int:
            raise OSError("no space left on device")

        flush = write

    executor = make_executor(1, stream_output=True)
    monkeypatch.setattr("sys.stdout", Broken())

    assert executor.submit(tasks.print_much, 1000).result(BOUND_S) == 1000
    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def test_a_task_may_ask_its_streams_what_they_are(make_executor) -> None:
    """Streamed streams answer what programs ask of stdout."""
    executor = make_executor(1, stream_output=True)

    assert executor.submit(_ask_stdout).result(BOUND_S) == ("utf-8", False, True)


def _ask_stdout():
    return sys.stdout.encoding, sys.stdout.isatty(), sys.stdout.writable()


def test_a_task_may_write_bytes(make_executor, capsys) -> None:
    """What is written to sys.stdout.buffer comes too, cut characters put together."""
    executor = make_executor(1, stream_output=True)
    executor.submit(_write_bytes).result(BOUND_S)

    assert capsys.readouterr().out == "grüße \\xff"


def _write_bytes() -> None:
    for byte in "grüße ".encode() + b"\xff":
        sys.stdout.buffer.write(bytes([byte]))
        sys.stdout.flush()


def test_a_stream_that_a_task_keeps_goes_on_working(make_executor) -> None:
    """What a task stored, as logging does, writes to the worker's own stream afterwards."""
    executor = make_executor(1, stream_output=True)
    executor.submit(_keep_stream).result(BOUND_S)

    assert executor.submit(_use_kept_stream).result(BOUND_S) == 6


def _keep_stream() -> None:
    tasks.kept = [sys.stderr]  # type: ignore[attr-defined]


def _use_kept_stream() -> int:
    written = tasks.kept[0].write("later\n")  # type: ignore[attr-defined]
    tasks.kept[0].flush()  # type: ignore[attr-defined]
    return int(written)


def test_what_a_slow_terminal_cannot_show_is_dropped(make_executor, monkeypatch) -> None:
    """Beyond a bound, output that nobody has read yet is dropped, and a line says how much."""
    monkeypatch.setattr("scaler_cluster.client.printing.WAITING_CHARS_MAX", 100_000)
    stream = Slow()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("sys.stderr", stream)
    executor = make_executor(1, stream_output=True)
    future = executor.submit(tasks.print_much, 10_000_000)
    waiter = threading.Thread(target=future.result)
    waiter.start()
    # The thread that prints holds nobody else up.
    wait_until(future.done, "the task did not come back")
    stream.ready.set()
    waiter.join(BOUND_S)
    executor.shutdown()

    assert future.result() == 10_000_000
    text = "".join(stream.texts)
    assert text.count("x") < 10_000_000
    assert re.search(r"\[scaler: \d+ characters came too fast to be shown\]", text)


class Slow:
    """A stream that takes nothing until it is ready."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.ready.wait(BOUND_S)
        self.texts.append(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing."""
