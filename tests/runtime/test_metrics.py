"""``scaler_metrics``, ``scaler_record`` and ``scaler_trace`` on a running cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from operator import add
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_cluster.wire import feed as f
from scaler_exec import ScalerExecutor, WorkerDiedError
from scaler_monitoring.feed import Feed
from scaler_monitoring.model import Model
from scaler_monitoring.recording import Recorder, read
from tests.runtime.helpers import BOUND_S, free_port, run_module, scheduling, wait_until
from tests.runtime.tasks import raise_this

NASTY = '<img src=x onerror="alert(1)">\n\\{}'


@pytest.fixture
def cluster():
    """Return a cluster whose feed comes often."""
    made = EmbeddedCluster(2, scheduling=scheduling(feed_interval_s=0.1))
    yield made
    made.stop()


def nasty(number):
    return number


nasty.__qualname__ = nasty.__name__ = NASTY


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def scripted(address):
    """Run what is known: 50 + 3 tasks return, 2 fail, 1 kills its worker."""
    with ScalerExecutor(address=address) as executor:
        assert sum(executor.map(add, range(50), range(50))) == 2450
        assert list(executor.map(nasty, range(3))) == [0, 1, 2]
        for _ in range(2):
            executor.submit(raise_this, "KeyError", "missing").exception(BOUND_S)
        assert isinstance(executor.submit(die).exception(BOUND_S), WorkerDiedError)


def scrape(url):
    """Return the samples by name and labels."""
    with urllib.request.urlopen(url, timeout=BOUND_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    return {
        (one.name, *sorted(one.labels.items())): one.value
        for family in parse(text)
        for one in family.samples
    }


def ended(function, outcome):
    return ("scaler_function_tasks_ended_total", ("function", function), ("outcome", outcome))


def test_what_is_scraped_is_what_was_run(cluster, shell):
    """A scrape over HTTP has the totals of what was run."""
    command = shell.start(f"scaler_metrics {cluster.monitor_address} --port 0")
    url = command.address("metrics at ")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", url)
    wait_until(lambda: scrape(url)["scaler_up",] == 1, "the scheduler is not heard")
    before = scrape(url)
    scripted(cluster.address)
    done = "scaler_tasks_ended_total", ("outcome", "done")
    wait_until(
        lambda: (
            scrape(url)["scaler_worker_deaths_total",] == before["scaler_worker_deaths_total",] + 1
            and ("scaler_workers", ("state", "idle")) in scrape(url)
            and scrape(url)["scaler_workers", ("state", "idle")] == 2
        ),
        "the death is not counted",
    )
    after = scrape(url)
    expected = {
        ("scaler_tasks_submitted_total",): 56,
        done: 53,
        ("scaler_tasks_ended_total", ("outcome", "failed")): 3,
        ("scaler_tasks_ended_total", ("outcome", "cancelled")): 0,
        ("scaler_function_tasks_submitted_total", ("function", "add")): 50,
        ended("add", "done"): 50,
        ended(NASTY, "done"): 3,
        ended("raise_this", "failed"): 2,
        ended("die", "failed"): 1,
    }

    assert {key: after[key] - before.get(key, 0) for key in expected} == expected
    assert after["scaler_machines",] == 1
    assert after["scaler_tasks", ("state", "running")] == 0
    assert after["scaler_scheduler_resident_memory_bytes",] > 1_000_000
    assert command.interrupt() == 0
    assert command.err == ""


def test_a_scheduler_may_come_and_go(shell):
    """Metrics say that there is no scheduler before there is one, and after it has gone."""
    port = free_port(3)
    command = shell.start(f"scaler_metrics tcp://127.0.0.1:{port + 2} --port 0")
    url = command.address("metrics at ")
    assert scrape(url) == {("scaler_up",): 0}

    scheduler = shell.start(f"scaler_scheduler -sri 0.1 tcp://127.0.0.1:{port}")
    wait_until(lambda: scrape(url)["scaler_up",] == 1, "the scheduler is not heard")
    begun = scrape(url)["scaler_scheduler_start_time_seconds",]
    assert abs(time.time() - begun) < BOUND_S
    assert scheduler.interrupt() == 0
    wait_until(lambda: scrape(url) == {("scaler_up",): 0}, "it is still told of")

    shell.start(f"scaler_scheduler -sri 0.1 tcp://127.0.0.1:{port}")
    wait_until(lambda: scrape(url)["scaler_up",] == 1, "the other scheduler is not heard")
    assert scrape(url)["scaler_scheduler_start_time_seconds",] > begun


def test_what_cannot_work_is_one_line():
    """A command that cannot work says what to do in one line, without a traceback."""
    name, address = "scaler_monitoring.metrics", "tcp://127.0.0.1:1"
    without = (
        f"import sys; sys.modules['prometheus_client'] = None; from {name} import main;"
        "sys.exit(main())"
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for done, says in (
            (run_module(name, address, source=without), "pip install 'scaler-exec[monitor]'"),
            (run_module(name, address, "-p", str(port)), f"port {port}: Address already in use"),
            (run_module(name, address, "--address", "no.such.invalid"), "cannot listen at no.such.invalid"),
            (run_module(name, address, "--port", "65536"), "-p/--port must be 0 to 65535, not 65536"),
            (run_module(name), "in [metrics] of a --config file"),
        ):  # fmt: skip
            assert done.returncode == 2, done.stderr
            assert says in done.stderr
            assert done.stderr.startswith("scaler_metrics: ")
            assert done.stderr.count("\n") == 1


# -- recordings ----------------------------------------------------------------------------------


def test_a_replay_says_what_was_seen_live(cluster, tmp_path):
    """A replay makes the model that was seen live, also if the end of the file is missing."""
    path = str(tmp_path / "feed.rec")
    live = Model()
    sizes = []
    with Feed(cluster.monitor_address) as feed, Recorder(path) as recorder:

        def hear():
            message = feed.next(BOUND_S)
            assert message is not None
            now = time.monotonic()
            live.apply(message, now)
            recorder.apply(message, now)
            sizes.append(os.path.getsize(path))
            return message

        while live.snapshot is None:
            hear()
        before = live.snapshot.tasks.done
        scripted(cluster.address)
        while live.snapshot.tasks.done < before + 53 or not any(
            isinstance(one, f.WorkerDied) for one in live.news
        ):
            hear()
    replayed = Model()
    for now, message in read(path):
        replayed.apply(message, now)

    # As text: what nobody has measured is nan, and equals nothing.
    assert str(vars(replayed)) == str(vars(live))
    assert {key for key, _ in replayed.failures} == {"raise_this", "die"}

    written = Path(path).read_bytes()
    Path(path).write_bytes(written[: (sizes[-2] + sizes[-1]) // 2])
    assert len(list(read(path))) == len(sizes) - 1


def test_commands_record_and_convert(cluster, shell):
    """A recording whose command was killed is converted to a file for Perfetto."""
    recorder = shell.start(f"scaler_record {cluster.monitor_address} feed.rec")
    recorder.wait_for("recording to feed.rec")
    scripted(cluster.address)
    path = str(shell.directory / "feed.rec")

    def is_whole():
        events = [one for _, batch in read(path) if isinstance(batch, f.Events)
                  for one in batch.events]  # fmt: skip
        return any(isinstance(one, f.WorkerDied) for one in events)

    wait_until(is_whole, "the death is not in the recording")
    recorder.process.kill()
    recorder.end()
    converted = shell.run("scaler_trace feed.rec trace.json")

    assert (converted.end(), converted.out, converted.err) == (0, "trace.json\n", "")
    events = json.loads((shell.directory / "trace.json").read_text())["traceEvents"]
    work = [one for one in events if one["ph"] == "X"]
    assert sum(one["args"]["count"] for one in work if one["name"] == "add") == 50
    failed = [one for one in work if one["name"] == "raise_this failed: KeyError"]
    assert len(failed) == 2
    assert all("KeyError" in one["args"]["traceback"] for one in failed)
    assert [one["name"] for one in events if one["name"].startswith("died: signal 9")]
    tracks = {one["tid"] for one in events if one["name"] == "thread_name"}
    assert {one["tid"] for one in work} <= tracks
    reported = shell.run("scaler_report feed.rec")
    assert (reported.end(), reported.out, reported.err) == (0, "feed.rec.html\n", "")
    assert "KeyError" in (shell.directory / "feed.rec.html").read_text()


def test_recording_ends_in_order(cluster, shell):
    """scaler_record ends by Ctrl-C without a word."""
    recorder = shell.start(f"scaler_record {cluster.monitor_address} feed.rec")
    recorder.wait_for("recording to feed.rec")

    assert recorder.interrupt() == 0
    assert recorder.err == ""
    assert shell.run("scaler_record tcp://127.0.0.1:1 /nosuch/feed.rec").err == (
        "scaler_record: cannot write /nosuch/feed.rec: No such file or directory\n"
    )
