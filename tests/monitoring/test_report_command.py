"""``scaler_report``: what it writes, and what it refuses in one line."""

from __future__ import annotations

import pytest

from scaler_cluster.wire import feed as f
from scaler_monitoring.recording import Recorder
from scaler_monitoring.report_command import main


def record(path, each_s):
    """Write a recording in which 100 tasks took so long each; return its path."""
    with Recorder(str(path)) as recorder:
        recorder.apply(f.Snapshot("run", 1, clock=0.0, workers=[f.Worker(b"W1")]), 0.0)
        price = f.Function("price", 100, 100, busy_s=100 * each_s)
        tasks = f.Tasks(done=100)
        last = f.Snapshot(
            "run", 2, clock=90.0, workers=[f.Worker(b"W1")], functions=[price], tasks=tasks
        )
        recorder.apply(last, 90.0)
    return str(path)


@pytest.fixture
def monday(tmp_path):
    return record(tmp_path / "monday.rec", 0.2)


def test_a_recording_becomes_a_page(monday, tmp_path, capsys):
    """The page is beside the recording, unless it is to be elsewhere."""
    page = str(tmp_path / "page.html")

    assert main([monday]) == 0
    assert main([monday, page]) == 0
    assert capsys.readouterr().out == f"{monday}.html\n{page}\n"
    for path in (f"{monday}.html", page):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        assert "price" in text
        assert "Compared with" not in text


def test_two_recordings_are_compared(monday, tmp_path):
    """With a base the page says how much longer a function took than there."""
    tuesday = record(tmp_path / "tuesday.rec", 0.5)

    assert main([tuesday, "--base", monday]) == 0
    with open(f"{tuesday}.html", encoding="utf-8") as file:
        text = "".join(file.read().split())
    assert "<td>200ms</td><td>500ms</td><td>2.5x</td>" in text


def test_what_cannot_be_reported_is_one_line(monday, tmp_path, capsys):
    """A failed command is one line and a status, and leaves what is there as it was."""
    (tmp_path / "text").write_text("no recording")
    Recorder(str(tmp_path / "empty")).close()
    with open(monday, "rb") as file:
        before = file.read()
    for arguments, says in (
        ([str(tmp_path / "text")], "is no recording"),
        ([monday, "--base", str(tmp_path / "nosuch")], "cannot read"),
        ([str(tmp_path / "empty")], "holds no snapshot"),
        ([monday, monday], "is a recording itself"),
        ([monday, str(tmp_path)], "cannot write"),
        ([], "file is missing"),
    ):
        assert main(arguments) == 2
        printed = capsys.readouterr()
        assert says in printed.err
        assert printed.err.startswith("scaler_report: ")
        assert printed.err.count("\n") == 1
        assert printed.out == ""
    with open(monday, "rb") as file:
        assert file.read() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["empty", "monday.rec", "text"]
