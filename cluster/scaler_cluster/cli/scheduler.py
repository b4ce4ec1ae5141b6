# PYTHON_ARGCOMPLETE_OK
"""``scaler_scheduler``: the scheduler of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import run_command, wait_for
from scaler_cluster.config.sections import SchedulerSettings, webhook_manager_id
from scaler_cluster.config.webhook_settings import WebhookSettings
from scaler_cluster.links.link import as_reached
from scaler_cluster.process.child import ChildProcess
from scaler_cluster.process.kept_scheduler import GRACE_S, KeptScheduler
from scaler_cluster.process.process_config import SchedulerProcessConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

COOLDOWN_S = 2.0
"""How long fewer groups must be enough: version 1.12 has no setting for it."""
ABOUT = "Run a scheduler, to which clients and clusters connect."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a scheduler until SIGINT or SIGTERM; return the exit status."""
    return run_command(SchedulerSettings, "scaler_scheduler", ABOUT, run, arguments)


def run(settings: SchedulerSettings) -> int:
    """Run a scheduler in a child process, and start it again if it is killed."""
    kept = KeptScheduler(SchedulerProcessConfig.from_settings(settings))
    managers: list[ChildProcess] = []
    try:
        kept.start()
        managers += (
            ChildProcess("manager", one) for one in webhook_managers(settings, kept.ready.address)
        )
        return wait_for([kept, *managers])
    finally:
        for one in managers:
            one.stop(GRACE_S)
        kept.stop()


def webhook_managers(settings: SchedulerSettings, address: str) -> list[WebhookSettings]:
    """Return the managers of the adapters that a scheduler at this address is to ask."""
    if settings.scaling_controller_strategy == "NULL":
        return []
    return [
        WebhookSettings(
            scheduler_address=as_reached(address, ""),
            url=url,
            worker_manager_id=webhook_manager_id(number),
            max_workers=-1,
            scale_down_cooldown_seconds=COOLDOWN_S,
            keys=settings.keys,
            insecure=settings.insecure,
            logging_paths=settings.logging_paths,
            logging_level=settings.logging_level,
            logging_config_file=settings.logging_config_file,
        )
        for number, url in enumerate(settings.adapter_webhook_urls, 1)
    ]
