"""Looks at the file that says who is let in, and has it read again when it has changed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError

if TYPE_CHECKING:
    from scaler_cluster.links.curve import AllowList
    from scaler_cluster.security.credentials import Credentials

log = logging.getLogger("scaler.keys")

LOOK_S = 1.0
"""A key that was removed is out after this, and what it takes to tell the storages."""


class KeyWatch:
    """The list of who is let in, as a file of keys has it at any time."""

    def __init__(self, credentials: Credentials, allowed: AllowList) -> None:
        self.credentials = credentials
        """As they were read last."""
        self.allowed = allowed
        self._seen: tuple[int, ...] | None = None
        """What the file was like when it was read last; None: it may have changed since then."""
        self._error = ""
        """Why it could not be read; it is tried again."""
        self.is_needed = bool(credentials.path)
        """False: there is no file."""

    def look(self) -> bool | None:
        """Return whether somebody is out, now that the file has changed; None: it has not.

        A file that cannot be read changes nothing: that is logged once.
        """
        status = self._status()
        if status == self._seen:
            return None
        try:
            credentials = self.credentials.reread()
        except ConfigError as error:
            if str(error) != self._error:
                log.warning("the keys stay as they were: %s", error)
            self._error = str(error)
            return None
        assert credentials.keys is not None
        self._seen, self._error = status, ""
        self.credentials = credentials
        if credentials.keys.users == self.allowed.users:
            return None
        is_out = self.allowed.replace(credentials.keys.users)
        log.info("keys read again: %d are let in", len(self.allowed.users))
        return is_out

    def _status(self) -> tuple[int, ...]:
        try:
            status = Path(self.credentials.path).stat()
        except OSError:
            return ()
        return status.st_ino, status.st_mtime_ns, status.st_size
