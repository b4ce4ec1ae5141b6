"""The settings of a manager whose units are machines that it reaches by SSH."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from scaler_cluster.config.manager_settings import ManagerSettings
from scaler_cluster.config.option import option
from scaler_cluster.config.values import FILE, FILES, FLAG, NAMES, PORT, STORAGES, TEXT
from scaler_cluster.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SSHSettings(ManagerSettings):
    """Of a manager whose units are machines: it runs workers there by the command ssh."""

    types: ClassVar[tuple[str, ...]] = ("ssh",)

    hosts: tuple[str, ...] = option(
        "the machines, in the order in which they are used, such as node1,me@node2; one that is "
        "named twice may have two units",
        NAMES,
        default=(),
    )
    hostfile: str | None = option(
        "a file with a machine in each line; # begins a comment", FILE, default=None
    )
    remote_python: str = option(
        "the interpreter there, in whose environment scaler-exec is installed",
        TEXT,
        default="python3",
    )
    ssh_port: int | None = option("the port of the machines (default: ssh's)", PORT, default=None)
    identity: str | None = option(
        "the file of the key to log in with (default: ssh's)", FILE, default=None
    )
    ssh_options: tuple[str, ...] = option(
        "options of ssh, as its -o takes them, such as StrictHostKeyChecking=yes",
        FILES,
        default=(),
    )

    ssh_tunnel: bool = option(
        "let the machines reach the scheduler, and be reached, through the ssh, as those need that "
        "cannot connect to its address",
        FLAG,
        default=False,
    )
    object_storage_address: tuple[str, ...] = option(
        "with ssh_tunnel: where the cluster's object storages are, in their order (default: at the "
        "port after the scheduler's)",
        STORAGES,
        "-osa",
        default=(),
    )

    def __post_init__(self) -> None:
        """Raise ConfigError if there is no machine, or nothing that a tunnel could lead to."""
        super().__post_init__()
        if not self.machines:
            raise ConfigError("no machine is named: give hosts or hostfile")
        if self.ssh_tunnel and not self.scheduler_address.startswith("tcp://"):
            raise ConfigError(
                f"ssh_tunnel needs a scheduler at tcp://, not at {self.scheduler_address}"
            )
        if self.ssh_tunnel and self.worker_scheduler_address is not None:
            raise ConfigError(
                "ssh_tunnel and worker_scheduler_address are two ways to the scheduler: give one"
            )

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines of both settings; raises ConfigError if the file cannot be read."""
        if self.hostfile is None:
            return self.hosts
        try:
            lines = Path(self.hostfile).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {self.hostfile}: {error}") from None
        named = (line.partition("#")[0].strip() for line in lines)
        machines = (*self.hosts, *(name for name in named if name))
        for name in machines:
            if name.startswith("-") or len(name.split()) != 1:
                raise ConfigError(f"{name!r} is not the name of a machine")
        return machines
