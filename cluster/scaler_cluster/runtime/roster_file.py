"""The file in which a scheduler leaves its roster to the one that takes its place."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path

from scaler_cluster.core.records.roster import Roster
from scaler_cluster.process.process import with_the_last_files

NAME = "roster"
log = logging.getLogger("scaler.scheduler")


class RosterFile:
    """The roster of a cluster whose directory this is; written for a kill, not for a power cut."""

    def __init__(self, directory: str) -> None:
        self._path = Path(directory, NAME)

    def read(self) -> Roster | None:
        """Return what the scheduler before has left; None: nothing."""
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return None
        machines = frozenset(map(bytes.fromhex, found["machines"]))
        return Roster(tuple(found["epochs"]), machines, found["is_whole"])

    def write(self, roster: Roster) -> None:
        """Leave this, and nothing else that was written before; what goes wrong is logged."""
        machines = [peer.hex() for peer in roster.machines]
        found = {"epochs": roster.epochs, "machines": machines, "is_whole": roster.is_whole}
        part = self._path.with_suffix(".part")
        try:
            with with_the_last_files():
                part.write_text(json.dumps(found), "ascii")
            part.replace(self._path)
        except FileNotFoundError:
            # The cluster has ended, and there will be no other scheduler.
            return
        except OSError as error:
            log.warning("cannot write %s: %s", self._path, error)
            with contextlib.suppress(OSError):
                # The next scheduler must not believe an old one.
                self._path.unlink()
