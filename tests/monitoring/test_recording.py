"""Recordings: what was written is read again, as far as the file goes."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.errors import ConfigError, RemoteProtocolError
from scaler_cluster.wire import feed as f
from scaler_monitoring.model import Model
from scaler_monitoring.recording import Recorder, read

MESSAGES = [
    f.Snapshot("run", 1, clock=1.0, time=1001.0, interval_s=1.0, tasks=f.Tasks(done=5)),
    f.Events("run", 1, 1.5, {}, [f.Done(1.4, b"W1", 1, 0, 5, "add", 0.1)]),
    f.Events("run", 2, 1.9, {"done": 3}, [f.Failed(1.8, b"W1", 1, 5, function="add")]),
    f.Snapshot("run", 2, clock=2.0, time=1002.0, interval_s=1.0, tasks=f.Tasks(done=7, failed=1)),
    f.Snapshot("other", 1, clock=0.5, time=1010.0, interval_s=1.0),
    f.Events("other", 1, 0.6, {}, [f.WorkerDied(0.6, b"W2", signal=9)]),
]


@pytest.fixture
def path(tmp_path):
    """Return the path of a recording of all these, one each quarter of a second."""
    name = str(tmp_path / "feed.rec")
    with Recorder(name) as recorder:
        for index, message in enumerate(MESSAGES):
            recorder.apply(message, index / 4)
    return name


def test_what_was_recorded_is_read(path):
    """A recording is read back as its messages with their times of arrival."""
    assert list(read(path)) == [(index / 4, one) for index, one in enumerate(MESSAGES)]


def test_it_is_there_at_once(tmp_path):
    """Each message is in the file as soon as it was recorded."""
    name = str(tmp_path / "feed.rec")
    recorder = Recorder(name)
    recorder.apply(MESSAGES[0], 1.0)

    assert list(read(name)) == [(1.0, MESSAGES[0])]
    recorder.close()


@given(data=st.data())
def test_a_file_that_was_cut_off_says_what_it_holds(data, tmp_path_factory):
    """A recording that was cut off is read up to its last whole message, without an error."""
    directory = tmp_path_factory.mktemp("cut")
    whole, cut = directory / "whole", directory / "cut"
    sizes = []
    with Recorder(str(whole)) as recorder:
        head = whole.stat().st_size
        for message in MESSAGES:
            recorder.apply(message, 1.0)
            sizes.append(whole.stat().st_size)
    content = whole.read_bytes()
    size = data.draw(st.integers(head, len(content)))
    cut.write_bytes(content[:size])

    found = [message for _, message in read(str(cut))]
    assert found == MESSAGES[: sum(one <= size for one in sizes)]


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_recording_or_are_not(tail, has_head):
    """Arbitrary bytes are read as a recording, or refused with an error of our own."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as directory:
        name = str(Path(directory) / "x")
        Recorder(name).close()
        head = Path(name).read_bytes() if has_head else b""
        Path(name).write_bytes(head + tail)
        try:
            found = list(read(name))
        except (ConfigError, RemoteProtocolError):
            return
        assert found == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no recording"),
        (b"\xc1\xc1", "is damaged, or no recording"),
        (b"just text", "is no recording"),
        (msgpack.packb({"recording": "scaler-exec feed", "version": 2}), "another version"),
    ],
)
def test_what_is_no_recording(tmp_path, content, message):
    """A file that is no recording is refused by its name."""
    file = tmp_path / "x.rec"
    file.write_bytes(content)

    with pytest.raises(ConfigError, match=message) as caught:
        list(read(str(file)))
    assert str(file) in str(caught.value)


def test_paths_that_cannot_be_used(tmp_path):
    """A path that cannot be read or written is refused with the reason."""
    with pytest.raises(ConfigError, match="cannot read .*: No such file"):
        list(read(str(tmp_path / "nosuch")))
    with pytest.raises(ConfigError, match="cannot write .*: Is a directory"):
        Recorder(str(tmp_path))


def test_a_disk_that_is_full_is_told():
    """A full disk is reported with the path."""
    with pytest.raises(ConfigError, match="cannot write /dev/full: No space left"):
        Recorder("/dev/full")


def test_a_replay_makes_the_same_model(path):
    """A replay makes the same model: counts, curves, news and times."""
    live, replayed = Model(), Model()
    for index, message in enumerate(MESSAGES):
        live.apply(message, index / 4)
    for now, message in read(path):
        replayed.apply(message, now)

    # As text: what nobody has measured is nan, and equals nothing.
    assert str(vars(replayed)) == str(vars(live))
