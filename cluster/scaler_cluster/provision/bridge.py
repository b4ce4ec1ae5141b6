"""How a manager speaks with a cluster of another system: through a child process.

The libraries of such clusters unpickle what they are sent, take signals for themselves, wait for
ever, or end their process when the cluster is gone. Nothing of that is to happen to a manager. So
a child has the library; it is asked by lines of JSON on its standard input, and answers by lines
on its standard output. It ends with its input. If it is silent or has ended, another one is
started at the next call.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import time
import traceback
from dataclasses import dataclass
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any, Protocol

from scaler_cluster.errors import ConfigError
from scaler_cluster.process.child import ChildProcess
from scaler_cluster.process.process import LIFELINE_FD, read_config
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.guest_unit import ATTACHED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scaler_cluster.config.manager_settings import ManagerSettings
    from scaler_cluster.provision.unit_command import UnitCommand
    from scaler_cluster.wire.messages import Offer

ANSWER_S = 45.0
"""A child that has not answered after this is killed."""
CLOSE_S = 3.0


@dataclass(frozen=True)
class BridgeConfig:
    """What the child is told."""

    address: str
    """Of the other cluster."""
    manager_id: str
    workers: int
    """How many a unit has."""


# -- the manager's side ------------------------------------------------------------------------


class BridgedBackend:
    """Starts, lists and ends units in a cluster of another system.

    ``system`` is its name; the module ``library``, which ``extra`` installs, speaks with it.
    """

    lifetime_s: float | None = None
    system: str
    library: str
    extra: str

    def __init__(self, settings: ManagerSettings, command: UnitCommand, address: str) -> None:
        self._command = command
        self._config = BridgeConfig(address, command.manager_id, settings.workers_per_unit)
        self._child: ChildProcess | None = None
        if not settings.dry_run and find_spec(self.library) is None:
            raise ConfigError(
                f"a manager in a {self.system} cluster needs {self.library}: "
                f"pip install 'scaler-exec[{self.extra}]'"
            )

    def offered(self, offer: Offer) -> Offer:
        """Return what the settings offer, once the cluster answers."""
        self.look()
        return offer

    def start(self, units: Sequence[str]) -> None:
        """Have units started, now or when there is room for them."""
        told = {unit: self._command.arguments(unit) for unit in units}
        self._ask("start", units=told, keys=self._command.keys_text)

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the manager's units, those among them that wait for room."""
        return {unit: UnitStatus(*status) for unit, status in self._ask("look").items()}

    def stop(self, units: Sequence[str]) -> None:
        """End these units."""
        self._ask("stop", units=list(units))

    def dry_run(self, unit: str) -> str:
        """Return the command of a unit."""
        return shlex.join(["python", "-m", ATTACHED, *self._command.arguments(unit)])

    def close(self) -> None:
        """End the child; units that are there stay."""
        if self._child is not None:
            self._child.stop(CLOSE_S)
            assert self._child.process.stdout is not None
            self._child.process.stdout.close()
            self._child = None

    def _ask(self, what: str, **told: object) -> Any:
        if self._child is None:
            self._child = ChildProcess(self.system.lower(), self._config, answers=True)
        self._child.tell(json.dumps({"do": what, **told}).encode() + b"\n")
        try:
            answer = self._answer(self._child)
        except BackendError:
            self._child.process.kill()
            self.close()
            raise
        if "error" in answer:
            raise BackendError(answer["error"])
        return answer["units"]

    def _answer(self, child: ChildProcess) -> dict[str, Any]:
        assert child.process.stdout is not None
        fd = child.process.stdout.fileno()
        until = time.monotonic() + ANSWER_S
        line = b""
        while not line.endswith(b"\n"):
            left = max(until - time.monotonic(), 0.0)
            if not select.select([fd], (), (), left)[0]:
                raise BackendError(f"{self.system} at {self._config.address} does not answer")
            part = os.read(fd, 1 << 16)
            if not part:
                raise BackendError(f"the connection to {self.system} has ended")
            line += part
        answer: dict[str, Any] = json.loads(line)
        return answer


# -- the child's side --------------------------------------------------------------------------


class GuestCluster(Protocol):
    """A cluster of another system, in the child."""

    def start(self, units: Mapping[str, Sequence[str]], keys: str) -> None:
        """Start units with these arguments and keys; raises BackendError."""

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the manager's units; raises BackendError."""

    def stop(self, units: Sequence[str]) -> None:
        """End units; raises BackendError."""

    def close(self) -> None:
        """Let go of the connection."""


def serve(connect: Callable[[BridgeConfig], GuestCluster]) -> int:
    """Answer until standard input ends, or until something fails that nobody foresaw.

    ``connect`` raises BackendError if there is no way to the cluster; another child tries again.
    """
    config = read_config(BridgeConfig)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What a library prints is no answer.
    os.dup2(2, 1)
    cluster: GuestCluster | None = None
    with os.fdopen(LIFELINE_FD, encoding="utf-8") as asked:
        for line in asked:
            try:
                cluster = cluster or connect(config)
                _say(answers, units=_do(cluster, json.loads(line)))
            except BackendError as error:
                _say(answers, error=str(error))
                if cluster is None:
                    return 1
            except Exception as error:
                traceback.print_exc()
                _say(answers, error=f"{type(error).__name__}: {error}")
                return 1
    if cluster is not None:
        cluster.close()
    return 0


def _do(cluster: GuestCluster, told: dict[str, Any]) -> dict[str, Any]:
    if told["do"] == "start":
        cluster.start(told["units"], told["keys"])
    elif told["do"] == "stop":
        cluster.stop(told["units"])
    else:
        return {unit: (one.is_over, one.reason) for unit, one in cluster.look().items()}
    return {}


def _say(answers: IO[str], **told: object) -> None:
    answers.write(json.dumps(told) + "\n")
    answers.flush()
