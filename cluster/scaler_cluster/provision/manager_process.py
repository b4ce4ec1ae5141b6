"""What a manager's process is told, made of its settings."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from scaler_cluster.core.manager.config import ManagerConfig
from scaler_cluster.errors import ConfigError
from scaler_cluster.process.process import host_name, usable_cpus
from scaler_cluster.wire.messages import MOST_MAX, Offer

if TYPE_CHECKING:
    from scaler_cluster.config.manager_settings import ManagerSettings

ID_CHARS_MAX = 40


def manager_id_of(settings: ManagerSettings) -> str:
    """Return the id of a manager: the given one, or the type and the name of this machine."""
    if settings.worker_manager_id is not None:
        return settings.worker_manager_id
    text = f"{settings.types[0]}-{host_name()}".lower()
    return re.sub(r"[^a-z0-9]+", "-", text)[:ID_CHARS_MAX].strip("-")


def most_of(settings: ManagerSettings) -> int:
    """Return the most workers that a manager may have."""
    if settings.max_workers == -1:
        return MOST_MAX
    return settings.max_workers or max(usable_cpus(), settings.min_workers)


def offer_of(settings: ManagerSettings) -> Offer:
    """Return what a manager offers the scheduler."""
    return Offer(
        settings.types[0],
        settings.min_workers,
        most_of(settings),
        settings.workers_in_unit,
        settings.scale_down_cooldown_seconds,
        settings.offered,
        shared=settings.offered_by_machine,
    )


def offer_that_fits(settings: ManagerSettings, offer: Offer) -> Offer:
    """Return an offer of a unit at least, once it is known how many workers that has.

    Raises ConfigError if the user allows fewer.
    """
    if offer.most >= offer.per_unit:
        return offer
    if settings.max_workers is None:
        return replace(offer, most=offer.per_unit)
    raise ConfigError(
        f"a unit has {offer.per_unit} workers, and there may be {offer.most}: none could start"
    )


def manager_config(
    settings: ManagerSettings, offer: Offer, lifetime_s: float | None
) -> ManagerConfig:
    """Return what the core of a manager is told that makes this offer.

    Its system lets a unit live for ``lifetime_s`` seconds; None: for as long as it likes.
    """
    return ManagerConfig(
        name=manager_id_of(settings),
        address=settings.scheduler_address,
        least=offer.least,
        most=offer.most,
        per_unit=offer.per_unit,
        heartbeat_s=settings.heartbeat_interval_seconds,
        drain_timeout_s=settings.drain_timeout_seconds,
        start_timeout_s=settings.start_timeout_seconds,
        death_timeout_s=settings.death_timeout_seconds,
        lifetime_s=math.inf if lifetime_s is None else lifetime_s,
        keeps_units=settings.keep_units,
    )
