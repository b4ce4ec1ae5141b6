"""Which GPUs a task is to use: what libraries read in the environment, and how it names them.

The scheduler numbers the GPUs of a machine from 0. A machine whose own environment names some has
these, in that order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError
from scaler_cluster.wire.messages import GPU

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
CONTAINERS = "NVIDIA_VISIBLE_DEVICES"
"""Of containers that a task starts."""
VARIABLES = CUDA, HIP, ROCR, CONTAINERS


def check_gpus(environment: Mapping[str, str], count: float) -> None:
    """Raise ConfigError if an environment names fewer GPUs than a machine is said to have."""
    for name in (CUDA, HIP, ROCR):
        if name in environment and len(_named(environment[name])) < count:
            raise ConfigError(
                f"machine_capabilities has {GPU}={count:g}, but {name} is {environment[name]!r}: "
                f"give the number of GPUs that it names"
            )


def gpu_variables(environment: Mapping[str, str], devices: Sequence[int]) -> dict[str, str]:
    """Return what a task finds in its environment that has these GPUs to itself.

    ROCR_VISIBLE_DEVICES stays as it is: HIP_VISIBLE_DEVICES counts within it, and CUDA's variable,
    which HIP reads as well, comes second to that.
    """
    cuda = _chosen(environment.get(CUDA, ""), devices)
    is_within = ROCR in environment and HIP not in environment
    hip = _chosen("" if is_within else environment.get(HIP, environment.get(CUDA, "")), devices)
    return {CUDA: cuda, HIP: hip, CONTAINERS: cuda}


def _chosen(listed: str, devices: Sequence[int]) -> str:
    names = _named(listed)
    return ",".join(names[one] if names else str(one) for one in devices)


def _named(listed: str) -> list[str]:
    """Return the GPUs of a list; as CUDA has it, -1 ends it."""
    names = [name.strip() for name in listed.split(",") if name.strip()]
    return names[: names.index("-1")] if "-1" in names else names
