"""Units on machines that are reached by SSH: each is an ``ssh`` that runs workers there.

The unit lives as long as the ``ssh`` here: its command has the channel as its standard input, and
ends when that does. So nothing is left on the machines if the manager is killed, and the next
manager has nothing to find there. Keys travel through the channel, ahead of anything else; so does
what a machine has to know of its tunnel, if it has one (``tunnels.py``).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING

from scaler_cluster.errors import ConfigError
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.guest_unit import ATTACHED, brief
from scaler_cluster.provision.tunnels import Opening, Tunnels
from scaler_cluster.texts import last_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.config.ssh_settings import SSHSettings
    from scaler_cluster.provision.unit_command import UnitCommand
    from scaler_cluster.wire.messages import Offer

END_S = 10.0
"""An ssh that has not ended this long after its channel was closed is killed."""
CONNECT_S = 10
ALIVE_S, ALIVE_MAX = 5, 3
"""A machine that has not answered so often, once in so many seconds, is given up."""
LAST_WORDS_S = 1.0
"""How long what an ssh has written is waited for when it has ended."""
TAIL_BYTES = 4096


class _Errors:
    """Passes on what an ssh writes to stderr, and keeps its end: that says why the unit ends.

    It may be ssh that cannot reach the machine, or Python there that cannot run the workers.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._tail = b""
        self._thread = threading.Thread(target=self._pass_on, name="ssh", daemon=True)
        self._thread.start()

    def last_words(self) -> str:
        """Return the last line, once the ssh has ended; empty: none."""
        # A process that ssh has left behind may have it open.
        self._thread.join(LAST_WORDS_S)
        return last_line(self._tail.decode(errors="replace"))

    def _pass_on(self) -> None:
        with self._stream:
            while part := os.read(self._stream.fileno(), 4096):
                self._tail = (self._tail + part)[-TAIL_BYTES:]
                with contextlib.suppress(OSError):
                    os.write(2, part)


@dataclass(frozen=True)
class _Session:
    """An ssh, and the machine that it leads to."""

    place: int
    """Which of the machines it is."""
    host: str
    process: subprocess.Popen[bytes]
    errors: _Errors

    def reason(self, status: int) -> str:
        """Return why it has ended, with this status."""
        return f"{self.host}: {self.errors.last_words() or f'ssh ended with status {status}'}"

    def let_go(self) -> None:
        """Close the channel; the unit ends then."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()


class SSHBackend:
    """Runs units by ssh; each machine has as many as it was named times."""

    lifetime_s: float | None = None

    def __init__(self, settings: SSHSettings, command: UnitCommand) -> None:
        self._settings = settings
        self._command = command
        self._sessions: dict[str, _Session] = {}
        if not settings.dry_run and shutil.which("ssh") is None:
            raise ConfigError("the command ssh cannot be found")
        self._tunnels: Tunnels | None = None
        if settings.ssh_tunnel:
            if not (command.keys_text or settings.insecure):
                raise ConfigError(
                    "ssh_tunnel needs keys that the machines can be told, as they cannot find "
                    "those of your user: give keys, or insecure"
                )
            self._tunnels = Tunnels(settings)

    def offered(self, offer: Offer) -> Offer:
        """Return what the machines can have of what the settings offer."""
        most = min(offer.most, len(self._settings.machines) * offer.per_unit)
        return replace(offer, most=most, least=min(offer.least, most))

    def start(self, units: Sequence[str]) -> None:
        """Start each unit on a machine that has none; raises BackendError if all have one."""
        keys = self._command.keys_text
        for unit in units:
            place = self._free_place()
            host, opening = self._settings.machines[place], self._opening(place)
            # What the workers write goes where the manager writes, and so does why they end.
            process = subprocess.Popen(
                [*self._ssh(host, opening), self._line(unit, opening)],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            assert process.stderr is not None
            self._sessions[unit] = _Session(place, host, process, _Errors(process.stderr))
            brief(process, keys, "" if opening is None else opening.tunnel.text)

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the units whose ssh runs, and those that have ended since this was asked last."""
        found: dict[str, UnitStatus] = {}
        for unit, session in list(self._sessions.items()):
            status = session.process.poll()
            found[unit] = UnitStatus()
            if status is not None:
                found[unit] = UnitStatus(is_over=True, reason=session.reason(status))
                del self._sessions[unit]
                session.let_go()
        return found

    def stop(self, units: Sequence[str]) -> None:
        """End units: their channels are closed."""
        sessions = [self._sessions[unit] for unit in units if unit in self._sessions]
        for session in sessions:
            session.let_go()
        until = time.monotonic() + END_S
        for session in sessions:
            try:
                session.process.wait(max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                session.process.kill()
                session.process.wait()

    def dry_run(self, unit: str) -> str:
        """Return the command that starts a unit."""
        host, opening = self._settings.machines[0], self._opening(0)
        return shlex.join([*self._ssh(host, opening), self._line(unit, opening)])

    def close(self) -> None:
        """End all units: nobody could find them again."""
        self.stop(list(self._sessions))
        self.look()

    def _free_place(self) -> int:
        busy = {session.place for session in self._sessions.values()}
        for place in range(len(self._settings.machines)):
            if place not in busy:
                return place
        raise BackendError("all machines have their units")

    def _opening(self, place: int) -> Opening | None:
        return None if self._tunnels is None else self._tunnels.open(place)

    def _ssh(self, host: str, opening: Opening | None) -> list[str]:
        settings = self._settings
        options = ["BatchMode=yes", f"ConnectTimeout={CONNECT_S}"]
        options += [f"ServerAliveInterval={ALIVE_S}", f"ServerAliveCountMax={ALIVE_MAX}"]
        command = ["ssh", "-T"]
        if opening is not None:
            command += opening.flags
        for one in (*settings.ssh_options, *options):
            command += ["-o", one]
        if settings.ssh_port is not None:
            command += ["-p", str(settings.ssh_port)]
        if settings.identity is not None:
            command += ["-i", settings.identity]
        return [*command, host, "--"]

    def _line(self, unit: str, opening: Opening | None) -> str:
        """Return what the shell of the machine runs."""
        command = self._command
        if opening is not None:
            there = replace(
                self._settings, ssh_tunnel=False, worker_scheduler_address=opening.scheduler
            )
            command = replace(command, settings=there)
        arguments = command.arguments(unit)
        return "exec " + shlex.join([self._settings.remote_python, "-m", ATTACHED, *arguments])
