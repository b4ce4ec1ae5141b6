"""The file that tells a scheduler which machines the one before it had."""

from __future__ import annotations

from scaler_cluster.core.records.roster import Roster
from scaler_cluster.runtime.roster_file import NAME, RosterFile

ROSTER = Roster((0, 268435455), frozenset({b"S1", b"\xff\0"}), True)


def test_the_next_scheduler_reads_what_was_written_last(tmp_path) -> None:
    """Of several rosters the last one counts; nothing else stays in the directory."""
    file = RosterFile(str(tmp_path))
    assert file.read() is None

    file.write(Roster((0,), frozenset(), False))
    file.write(ROSTER)

    assert RosterFile(str(tmp_path)).read() == ROSTER
    assert [one.name for one in tmp_path.iterdir()] == [NAME]


def test_an_old_roster_is_not_believed(tmp_path, monkeypatch, caplog) -> None:
    """If a roster cannot be written, there is none, and the log says so."""
    file = RosterFile(str(tmp_path))
    file.write(ROSTER)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", fail)
    file.write(Roster((0,), frozenset(), False))

    assert file.read() is None
    assert "cannot write" in caplog.text


def test_a_roster_stops_no_scheduler(tmp_path, monkeypatch, caplog) -> None:
    """Whatever is wrong with the disk, or if it is gone, writing raises nothing."""
    RosterFile(str(tmp_path / "gone")).write(ROSTER)
    assert not caplog.text

    def fail(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("pathlib.Path.write_text", fail)
    monkeypatch.setattr("pathlib.Path.unlink", fail)
    RosterFile(str(tmp_path)).write(ROSTER)
    assert "Read-only file system" in caplog.text
