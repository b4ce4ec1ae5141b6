"""Reports of what a cluster does meanwhile: another process listens, and writes them."""

from __future__ import annotations

import json
import logging
import os
import select
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError
from scaler_cluster.process.child import STOP_TIMEOUT_S, ChildProcess
from scaler_cluster.process.monitor_config import ReportProcessConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_cluster.security.credentials import Credentials

WRITE_TIMEOUT_S = 60.0
"""A page takes a second or two to be made; who has not made it after this never will."""

log = logging.getLogger(__name__)


@contextmanager
def reporting(
    monitor_address: str,
    credentials: Credentials,
    path: str | os.PathLike[str],
    *,
    has_profile: bool,
) -> Iterator[None]:
    """Listen at an address until the body is over, then write the page, also if that raises.

    Raises ConfigError, before the body if it can be known by then.
    """
    done_read, done_write = os.pipe()
    try:
        try:
            goal = str(Path(path).absolute())
            config = ReportProcessConfig(
                monitor_address, credentials, goal, done_write, has_profile
            )
            child = ChildProcess("report", config, reports=True, pass_fds=(done_write,))
        finally:
            os.close(done_write)
        try:
            child.await_ready()
            try:
                yield
            except BaseException:
                _write_all_the_same(child, done_read)
                raise
            _write(child, done_read)
        finally:
            child.stop(STOP_TIMEOUT_S)
    finally:
        os.close(done_read)


def _write(child: ChildProcess, done: int) -> None:
    """Let the process write its page; raise ConfigError if it does not."""
    child.let_go()
    text = b""
    deadline = time.monotonic() + WRITE_TIMEOUT_S
    while not text.endswith(b"\n"):
        left_s = max(deadline - time.monotonic(), 0.0)
        part = os.read(done, 4096) if select.select([done], [], [], left_s)[0] else b""
        if not part:
            raise ConfigError("no report was written: the process that makes it has failed")
        text += part
    error = json.loads(text)["error"]
    if error:
        raise ConfigError(error)


def _write_all_the_same(child: ChildProcess, done: int) -> None:
    """Let it write its page while an exception is on its way, which counts for more."""
    try:
        _write(child, done)
    except ConfigError as error:
        log.warning("%s", error)
