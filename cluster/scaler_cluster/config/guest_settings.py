"""The settings of managers whose units are guests: in a Dask or a Ray cluster that is there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from scaler_cluster.config.manager_settings import ManagerSettings
from scaler_cluster.config.option import option
from scaler_cluster.config.values import Kind


def _read_dask_address(value: str) -> str:
    if not re.fullmatch(r"[a-z]+://\S+:\d+", value):
        raise ValueError(f"must be an address such as tcp://10.0.0.1:8786, not {value!r}")
    return value


def _read_ray_address(value: str) -> str:
    if not re.fullmatch(r"auto|(ray://)?[^\s/]+:\d+", value):
        raise ValueError(
            f"must be auto, or an address such as 10.0.0.1:6379 or ray://10.0.0.1:10001, not "
            f"{value!r}"
        )
    return value


DASK_ADDRESS = Kind("ADDRESS", "a text such as tcp://10.0.0.1:8786", (str,), _read_dask_address)
RAY_ADDRESS = Kind("ADDRESS", "a text such as 10.0.0.1:6379", (str,), _read_ray_address)


@dataclass(frozen=True, kw_only=True)
class DaskSettings(ManagerSettings):
    """Of a manager whose units run beside the workers of a Dask cluster, on their machines."""

    types: ClassVar[tuple[str, ...]] = ("dask",)

    dask_scheduler: str = option(
        "where the scheduler of Dask listens, such as tcp://10.0.0.1:8786; for tls:// Dask's own "
        "configuration names the certificates",
        DASK_ADDRESS,
    )


@dataclass(frozen=True, kw_only=True)
class RaySettings(ManagerSettings):
    """Of a manager whose units are actors of a Ray cluster."""

    types: ClassVar[tuple[str, ...]] = ("ray",)

    ray_address: str = option(
        "the Ray cluster: auto, for the one of this machine, an address such as 10.0.0.1:6379, or "
        "that of a Ray client server, such as ray://10.0.0.1:10001",
        RAY_ADDRESS,
        default="auto",
    )
