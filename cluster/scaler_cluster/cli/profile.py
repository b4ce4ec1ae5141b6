# PYTHON_ARGCOMPLETE_OK
"""``scaler_profile``: where the time of a running cluster's tasks goes, or what they are at."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import guard
from scaler_cluster.client.profile import take_profile, take_stacks
from scaler_cluster.config.load import load
from scaler_cluster.config.sections import ProfileSettings
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import MONITOR

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "scaler_profile"
ABOUT = (
    "Sample what the tasks of a running cluster do for a while, and print the functions that take "
    "the most time. Or print the stack of each task that runs now."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Look at the tasks of a cluster; return the exit status."""
    return guard(PROGRAM, lambda: _run(load(ProfileSettings, PROGRAM, ABOUT, arguments)))


def _run(settings: ProfileSettings) -> None:
    address, credentials = settings.monitor_address, Credentials.of(MONITOR, settings.given_keys)
    if settings.stacks:
        rows = [
            row for row in take_stacks(address, credentials)
            if settings.function in {None, row.function}
        ]  # fmt: skip
        sys.stdout.write("\n".join(f"{row}\n" for row in rows) or "no task runs\n")
        return
    profile = take_profile(address, credentials, settings.seconds, settings.function)
    sys.stdout.write(f"{profile!r}\n")
    if settings.file is not None:
        profile.save(settings.file)
        sys.stdout.write(f"{settings.file}\n")


if __name__ == "__main__":
    raise SystemExit(main())
