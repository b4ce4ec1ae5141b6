"""The commands."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


def object_storage_server(arguments: Sequence[str] | None = None) -> int:
    """Run an object storage until SIGINT or SIGTERM; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="scaler_object_storage_server",
        description="Keep the objects of a cluster: start it first, then the scheduler, which is "
        "given its address.",
    )
    parser.add_argument("address", help="where to listen, as tcp://127.0.0.1:8517")
    parser.add_argument(
        "--memory-limit",
        type=_positive,
        metavar="BYTES",
        help="shared memory that objects may take, more go to disk (default: 80%% of /dev/shm)",
    )
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from scaler_cluster.runtime.storage import serve_alone

        serve_alone(options.address, options.memory_limit, _say)
    except KeyboardInterrupt:
        return 0
    except ConfigError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 1
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(text)
    return number
