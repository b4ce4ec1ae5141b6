# PYTHON_ARGCOMPLETE_OK
"""``scaler_report``: a recording as a page, by itself or beside another one."""

from __future__ import annotations

import sys
from os.path import realpath
from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import guard
from scaler_cluster.config.load import load
from scaler_cluster.config.sections import ReportSettings
from scaler_cluster.errors import ConfigError
from scaler_monitoring import recording
from scaler_monitoring.period import Period

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "scaler_report"
ABOUT = (
    "Write a page about what a recording has, which any browser opens without a server. With "
    "another recording, the page also says how the two differ."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; return the exit status."""
    return guard(PROGRAM, lambda: _run(load(ReportSettings, PROGRAM, ABOUT, arguments)))


def _run(settings: ReportSettings) -> None:
    try:
        from scaler_monitoring.report import try_path, write
    except ImportError:
        raise ConfigError(
            "a report needs bokeh, which is not installed: pip install 'scaler-exec[monitor]'"
        ) from None
    output = settings.output or f"{settings.file}.html"
    sources = [one for one in (settings.file, settings.base) if one is not None]
    if realpath(output) in map(realpath, sources):
        raise ConfigError(f"{output} is a recording itself: name another file")
    try_path(output)
    period, *others = [_period_of(source) for source in sources]
    write(output, period, (settings.base or "", others[0]) if others else None)
    sys.stdout.write(f"{output}\n")


def _period_of(path: str) -> Period:
    period = Period()
    for at, message in recording.read(path):
        period.apply(message, at)
    if period.first is None:
        raise ConfigError(f"{path} holds no snapshot, so there is nothing to report")
    return period


if __name__ == "__main__":
    raise SystemExit(main())
