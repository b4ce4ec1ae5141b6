"""Units that are actors of a Ray cluster that is there.

Each is a detached actor with the unit's name, in a namespace of the manager. It asks Ray for as
many CPUs as it has workers. One for which Ray has no room waits; a cluster of Ray that grows by
itself grows for it. Run as a program, this is the child of a manager that is a driver of Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.bridge import BridgeConfig, BridgedBackend, serve
from scaler_cluster.provision.guest_unit import END_S, Order, UnitActor
from scaler_cluster.texts import last_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.config.guest_settings import RaySettings
    from scaler_cluster.provision.unit_command import UnitCommand

LOOK_S = 1.0
"""An actor that has not answered after this is busy, or Ray has not placed it."""
TIMEOUT_S = 5.0
"""An actor has so long, besides what its unit may take to end."""
CALLS = 2
"""What an actor does at once: it tells how its unit is while that ends."""


class RayBackend(BridgedBackend):
    """Runs units as actors of a Ray cluster."""

    system, library, extra = "Ray", "ray", "ray"

    def __init__(self, settings: RaySettings, command: UnitCommand) -> None:
        super().__init__(settings, command, settings.ray_address)


class RayCluster:
    """The Ray cluster, in the child."""

    def __init__(self, config: BridgeConfig) -> None:
        import ray

        self._config = config
        self._ray = ray
        self._asked: dict[str, Any] = {}
        """Of each unit the answer that its actor has yet to give."""
        self._alive: set[str] = set()
        """Units whose actors have answered: Ray has placed them."""
        try:
            ray.init(
                config.address,
                namespace=f"scaler-{config.manager_id}",
                log_to_driver=False,
                logging_level="warning",
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            why = _reason(error)
            raise BackendError(f"Ray at {config.address} does not answer: {why}") from None

    def start(self, units: Mapping[str, Sequence[str]], keys: str) -> None:
        """Make an actor for each unit; Ray places it when it has room."""
        config, ray = self._config, self._ray
        actor = ray.remote(UnitActor)
        for unit, arguments in units.items():
            order = Order(config.manager_id, config.workers, tuple(arguments), keys)
            # An object, not a value: Ray keeps a value among what it knows of the actor.
            actor.options(
                name=unit,
                lifetime="detached",
                num_cpus=config.workers,
                max_restarts=0,
                max_concurrency=CALLS,
            ).remote(ray.put(order))

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the actors of the manager, also those that wait; those that are over are ended."""
        ray = self._ray
        listed = ray.util.list_named_actors()
        gone = self._alive - {*listed, *self._asked}
        self._alive -= gone
        for unit in listed:
            if unit not in self._asked and (actor := self._actor(unit)) is not None:
                self._asked[unit] = actor.status.remote()
        refs = list(self._asked.values())
        there, _ = ray.wait(refs, num_returns=len(refs), timeout=LOOK_S) if refs else ([], [])
        found = {unit: self._status_of(unit, ref in there) for unit, ref in self._asked.items()}
        for unit, ref in list(self._asked.items()):
            if ref in there:
                del self._asked[unit]
            if found[unit].is_over:
                self._alive.discard(unit)
                self._kill(unit)
        return found | dict.fromkeys(gone, UnitStatus(True, "Ray has lost its actor"))

    def stop(self, units: Sequence[str]) -> None:
        """End units; an actor that Ray has not placed is forgotten."""
        self.look()
        actors = {unit: self._actor(unit) for unit in units}
        ends = [
            actor.end.remote()
            for unit, actor in actors.items()
            if unit in self._alive and actor is not None
        ]
        if ends:
            self._ray.wait(ends, num_returns=len(ends), timeout=END_S + TIMEOUT_S)
        for unit in units:
            self._kill(unit)
        self._alive -= set(units)

    def close(self) -> None:
        """Close the connection; detached actors stay."""
        self._ray.shutdown()

    def _actor(self, unit: str) -> Any:
        """Return the actor of a unit; None: there is none."""
        try:
            return self._ray.get_actor(unit)
        except ValueError:
            return None

    def _kill(self, unit: str) -> None:
        actor = self._actor(unit)
        if actor is not None:
            self._ray.kill(actor)

    def _status_of(self, unit: str, has_answered: bool) -> UnitStatus:
        if not has_answered:
            cpus = self._config.workers
            why = f"Ray has not placed it yet: it needs {cpus} CPU{'s' * (cpus > 1)}"
            return UnitStatus(reason="" if unit in self._alive else why)
        try:
            status = self._ray.get(self._asked[unit])
        except self._ray.exceptions.RayError as error:
            return UnitStatus(True, _reason(error))
        if status is None:
            self._alive.add(unit)
            return UnitStatus()
        why = f"its workers ended with status {status}; the log of its actor says why"
        return UnitStatus(True, why if status else "")


def _reason(error: Exception) -> str:
    """Return what Ray says last: that is the reason."""
    return last_line(str(error)) or type(error).__name__


if __name__ == "__main__":
    raise SystemExit(serve(RayCluster))
