# PYTHON_ARGCOMPLETE_OK
"""``scaler_worker_adapter_native`` and its kin: the webhook of version 1.12."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.cli.cluster import run_cluster
from scaler_cluster.cli.shared import run_command
from scaler_cluster.config.aws_settings import ECSAdapterSettings
from scaler_cluster.config.proxy_settings import SymphonyAdapterSettings
from scaler_cluster.config.webhook_settings import FixedNativeSettings, NativeAdapterSettings
from scaler_cluster.process.process import lifeline_of_signals, usable_cpus
from scaler_cluster.process.process_config import SupervisorProcessConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.config.webhook_settings import AdapterSettings

ABOUT = "Answer by HTTP: start and shut down groups of workers, as a scheduler asks for them."
ABOUT_SYMPHONY = "Answer by HTTP: start and shut down workers whose tasks run in IBM Symphony."
ABOUT_FIXED = "Run as many workers as this machine may have."


def native(arguments: Sequence[str] | None = None) -> int:
    """Run the adapter for workers on this machine; return the exit status."""
    return run_command(
        NativeAdapterSettings, "scaler_worker_adapter_native", ABOUT, _run, arguments
    )


def symphony(arguments: Sequence[str] | None = None) -> int:
    """Run the adapter for workers whose tasks run in Symphony; return the exit status."""
    return run_command(
        SymphonyAdapterSettings,
        "scaler_worker_adapter_symphony",
        ABOUT_SYMPHONY,
        _run,
        arguments,
    )


def ecs(arguments: Sequence[str] | None = None) -> int:
    """Run the adapter for tasks of ECS; return the exit status."""
    return run_command(ECSAdapterSettings, "scaler_worker_adapter_ecs", ABOUT, _run, arguments)


def fixed_native(arguments: Sequence[str] | None = None) -> int:
    """Run a fixed number of workers on this machine; return the exit status."""
    return run_command(
        FixedNativeSettings,
        "scaler_worker_adapter_fixed_native",
        ABOUT_FIXED,
        _run_fixed,
        arguments,
    )


def _run(settings: AdapterSettings) -> None:
    from scaler_cluster.runtime.adapter import run_adapter

    run_adapter(settings, lifeline_of_signals())


def _run_fixed(settings: FixedNativeSettings) -> None:
    run_cluster(fixed_cluster(settings))


def fixed_cluster(settings: FixedNativeSettings) -> SupervisorProcessConfig:
    """Return what the supervisor is told of a cluster that always has as many workers."""
    workers = settings.max_workers or max(usable_cpus() - 1, 1)
    return SupervisorProcessConfig.fixed(settings, workers, "FIX")
