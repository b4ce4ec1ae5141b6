"""``scaler_logs`` and ``scaler_record --logs`` on a running cluster."""

from __future__ import annotations

import pytest

from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_cluster.wire import feed
from scaler_exec import Client, ScalerExecutor
from scaler_monitoring.recording import read
from tests.runtime.helpers import BOUND_S, scheduling, wait_until

NASTY = "\x1b[2Jtell"


@pytest.fixture
def cluster():
    """Return a cluster of one worker."""
    made = EmbeddedCluster(1)
    yield made
    made.stop()


@pytest.mark.parametrize("streams", [False, True])
def test_a_terminal_shows_lines_and_a_recording_keeps_them(cluster, shell, capsys, streams):
    """Lines that match are shown as they come, and later from a recording; Ctrl-C ends in order.

    A client to which its tasks print gets them as ever.
    """
    monitor, path = cluster.monitor_address, str(shell.directory / "feed.rec")
    shown = shell.start(f"scaler_logs {monitor} --follow --grep tell --function print")
    recorder = shell.start(f"scaler_record --logs {monitor} feed.rec")
    recorder.wait_for("recording to feed.rec")
    with Client(cluster.address, stream_output=streams) as client:

        def is_told():
            client.submit(print, f"other\n{NASTY}").result(BOUND_S)
            kept = [one.text for _, message in read(path) if isinstance(message, feed.Logs)
                    for one in message.lines]  # fmt: skip
            return "tell" in shown.out and NASTY in kept

        wait_until(is_told, "the line is not there")
    assert (NASTY in capsys.readouterr().out) is streams
    assert (shown.interrupt(), recorder.interrupt()) == (0, 0)
    replayed = shell.run("scaler_logs --replay feed.rec --grep tell")

    assert (shown.err, replayed.err) == ("", "")
    for out in (shown.out, replayed.out):
        lines = out.splitlines()
        assert all(one.endswith(" print stdout: ?[2Jtell") for one in lines), lines


def test_only_who_asks_for_lines_gets_them(cluster, shell):
    """A recorder that was not told to keep lines makes no worker listen, and keeps none."""
    recorder = shell.start(f"scaler_record {cluster.monitor_address} feed.rec")
    recorder.wait_for("recording to feed.rec")
    with ScalerExecutor(address=cluster.address) as executor:
        is_there = "'scaler_cluster.runtime.log_tail' in __import__('sys').modules"
        assert executor.submit(eval, is_there).result(BOUND_S) is False
    assert recorder.interrupt() == 0

    topics = {type(message) for _, message in read(str(shell.directory / "feed.rec"))}
    assert feed.Snapshot in topics
    assert feed.Logs not in topics


def test_why_nothing_is_shown_is_said(shell):
    """A scheduler that hides what tasks print says so, and so does the lack of any scheduler."""
    cluster = EmbeddedCluster(1, scheduling=scheduling(hides_logs=True))
    try:
        hidden = shell.run(f"scaler_logs {cluster.monitor_address} --follow")
        assert hidden.end() == 2
        assert "started with --hide-logs" in hidden.err
    finally:
        cluster.stop()
    unheard = shell.run(f"scaler_logs {cluster.monitor_address} --seconds 0.2")
    assert unheard.end() == 1
    assert f"nothing was heard from {cluster.monitor_address}" in unheard.err
