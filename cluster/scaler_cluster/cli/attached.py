"""``scaler_cluster`` at the end of a channel: ``python -m scaler_cluster.cli.attached``.

A manager runs it through SSH. Its standard input brings a file of keys, and what is to be known of
a tunnel, the length of each in a line ahead of it; both may be empty. Then it says nothing more
until the channel is closed: then this ends. So it needs no signal, and no key is on its command
line.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scaler_cluster.cli.cluster import ABOUT
from scaler_cluster.cli.shared import run_command
from scaler_cluster.config.worker_settings import ClusterSettings
from scaler_cluster.errors import ClusterUnreachableError
from scaler_cluster.process.process import LIFELINE_FD
from scaler_cluster.process.process_config import SupervisorProcessConfig
from scaler_cluster.process.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Sequence

LENGTH_DIGITS_MAX = 9


def main(arguments: Sequence[str] | None = None) -> int:
    """Run workers until the channel is closed, or the scheduler is gone; return the status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    text, tunnel = _read_text(), _read_text().decode()
    run = partial(_run, Tunnel.of(tunnel) if tunnel else None)
    if not text:
        return run_command(ClusterSettings, "scaler_cluster", ABOUT, run, given)
    # Only its user can read what is in it.
    with tempfile.TemporaryDirectory(prefix="scaler-keys-") as directory:
        path = Path(directory) / "worker.key"
        path.touch(mode=0o600)
        path.write_bytes(text)
        given.append(f"--keys={path}")
        return run_command(ClusterSettings, "scaler_cluster", ABOUT, run, given)


def _run(tunnel: Tunnel | None, settings: ClusterSettings) -> None:
    from scaler_cluster.runtime.supervisor import Supervisor

    config = replace(SupervisorProcessConfig.from_settings(settings), tunnel=tunnel)
    reason = Supervisor(config, LIFELINE_FD).run()
    if reason:
        raise ClusterUnreachableError(reason)


def _read_text() -> bytes:
    """Return the next text that the channel brings, and read no byte more."""
    line = b""
    while not line.endswith(b"\n"):
        line += _read(1)
        if len(line) > LENGTH_DIGITS_MAX or not line.strip().isdigit():
            raise SystemExit("standard input must begin with the length of what follows")
    text = b""
    while len(text) < int(line):
        text += _read(int(line) - len(text))
    return text


def _read(most: int) -> bytes:
    part = os.read(LIFELINE_FD, most)
    if not part:
        raise SystemExit(1)
    return part


if __name__ == "__main__":
    raise SystemExit(main())
