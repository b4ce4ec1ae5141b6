# PYTHON_ARGCOMPLETE_OK
"""``scaler_worker_manager``: has workers started by some system, as the scheduler wants them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scaler_cluster.cli import proxy
from scaler_cluster.cli.cluster import run_cluster
from scaler_cluster.cli.shared import guard, run_command
from scaler_cluster.config.manager_settings import ManagerSettings
from scaler_cluster.config.manager_types import MANAGERS, settings_of_type
from scaler_cluster.config.native_settings import NativeSettings
from scaler_cluster.config.proxy_settings import ProxyManagerSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.process.process import lifeline_of_signals
from scaler_cluster.process.process_config import SupervisorProcessConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "scaler_worker_manager"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a manager until SIGINT or SIGTERM; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0].startswith("-"):
        return guard(PROGRAM, lambda: _explain(given))
    return guard(PROGRAM, lambda: _run(given[0], given[1:]))


def _explain(given: Sequence[str]) -> int:
    usage = f"usage: {PROGRAM} TYPE [ADDRESS] [OPTION ...]; TYPE is one of {', '.join(MANAGERS)}"
    if given and given[0] in ("-h", "--help"):
        sys.stdout.write(f"{usage}\n{PROGRAM} TYPE --help shows the options of a type\n")
        return 0
    raise ConfigError(f"the type comes first; {usage}")


def _run(name: str, arguments: Sequence[str]) -> int:
    kind = settings_of_type(name)
    assert issubclass(kind, ManagerSettings | ProxyManagerSettings)
    about = (kind.__doc__ or "").partition("\n")[0]
    return run_command(kind, f"{PROGRAM} {name}", about, manage, arguments)


def manage(settings: ManagerSettings | ProxyManagerSettings) -> None:
    """Run a manager to its end; raises ClusterUnreachableError if nobody has asked for that."""
    if isinstance(settings, ProxyManagerSettings):
        proxy.run(settings)
        return
    if isinstance(settings, NativeSettings):
        run_cluster(SupervisorProcessConfig.from_native_settings(settings))
        return
    from scaler_cluster.runtime.manager import run_manager

    run_manager(settings, lifeline_of_signals())
