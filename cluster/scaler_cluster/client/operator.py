"""An operator: whoever acts on the tasks and workers of others, with a key of its own."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from operator import index
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster import arguments
from scaler_cluster.config.values import CONNECT
from scaler_cluster.errors import (
    ClusterUnreachableError,
    ConfigError,
    OperationRefusedError,
    SessionClosedError,
    SessionForkedError,
)
from scaler_cluster.ids import NAME_CHARS_MAX
from scaler_cluster.objects.source import Source
from scaler_cluster.process.process import make_peer_id
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.texts import shown
from scaler_cluster.users import OPERATOR
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from typing_extensions import Self

LOOK_S = 0.1
"""How long to wait for an answer before what is due to be sent again is looked after."""


@dataclass(frozen=True)
class Met:
    """What an operator's action met, or would meet."""

    count: int
    """How many tasks, or workers."""
    text: str
    """The same in words, such as ``12 tasks of 1 client``."""


class Operator:
    """Acts on the tasks and workers of others, at the scheduler's ``address``.

    ``keys`` is a file of ``scaler_keys add DIRECTORY operator NAME``; without it, at a loopback
    address, the one of ``scaler_keys loopback-operator`` counts, and elsewhere what SCALER_KEYS
    names. Each action returns what it met, as a :class:`Met`; with ``trial=True`` it does nothing,
    and returns what it would meet. The scheduler writes each action into its log.

    Actions raise OperationRefusedError if the scheduler does not do what is asked for, because it
    knows nothing of that name, for one. They raise ClusterUnreachableError if no answer comes
    within ``timeout`` seconds; what was asked for may have been done then. Threads may share it.

    Raises ConfigError if there is no operator's key, or the address needs none: without keys a
    scheduler obeys nobody.
    """

    def __init__(
        self,
        address: str,
        *,
        keys: str | os.PathLike[str] | None = None,
        timeout: float = 10.0,
    ) -> None:
        self._address = CONNECT.argument("address", address)
        self._timeout = arguments.seconds("timeout", timeout)
        credentials = Credentials.of(OPERATOR, arguments.keys_path(keys))
        passport = credentials.resolved(self._address).passport(self._address)
        if passport is None:
            raise ConfigError(
                f"at {self._address} nobody shows a key, and without an operator's key a scheduler "
                "obeys nobody: let it listen at a tcp:// address, with keys"
            )
        self._lock = threading.Lock()
        self._number = 0
        self._is_closed = False
        self._pid = os.getpid()
        peer = make_peer_id("O")
        self._source = Source(self._address, self._address, peer, passport, m.OPERATOR)

    # -- tasks -------------------------------------------------------------------------------------

    def cancel(
        self,
        *,
        task: str | None = None,
        function: str | None = None,
        graph: str | None = None,
        client: int | str | None = None,
        trial: bool = False,
    ) -> Met:
        """Cancel one task, all tasks of a function, a graph, or all work of a client.

        Their futures are cancelled, as if their client had done that, and its log says who did. A
        task is named as ``client:task`` by the dashboard and ``scaler_top``; a graph by any node
        of it.
        """
        kind, name = _only(task=task, function=function, graph=graph, client=client)
        return self._act(m.CANCEL, kind, name, is_trial=trial)

    # -- workers -----------------------------------------------------------------------------------

    def pause(
        self, *, worker: str | None = None, machine: str | None = None, trial: bool = False
    ) -> Met:
        """Give a worker nothing more, or all workers of a machine, until they are resumed.

        They finish what they run; what they have not begun goes to others.
        """
        kind, name = _only(worker=worker, machine=machine)
        return self._act(m.PAUSE, kind, name, is_trial=trial)

    def resume(
        self, *, worker: str | None = None, machine: str | None = None, trial: bool = False
    ) -> Met:
        """Let paused workers go on."""
        kind, name = _only(worker=worker, machine=machine)
        return self._act(m.RESUME, kind, name, is_trial=trial)

    def drain(
        self, *, worker: str | None = None, machine: str | None = None, trial: bool = False
    ) -> Met:
        """Let a worker leave for good, or a machine with all its workers.

        They finish what they run, and nothing that others need is lost.
        """
        kind, name = _only(worker=worker, machine=machine)
        return self._act(m.DRAIN, kind, name, is_trial=trial)

    def restart(
        self,
        *,
        worker: str | None = None,
        machine: str | None = None,
        force: bool = False,
        trial: bool = False,
    ) -> Met:
        """Let new processes take the place of a worker, or of all workers of a machine.

        They finish what they run before. With ``force`` they are killed, and what they run begins
        anew; what runs at most once fails with WorkerDiedError.
        """
        kind, name = _only(worker=worker, machine=machine)
        return self._act(m.RESTART, kind, name, is_trial=trial, is_forced=force)

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave; what was asked for stays done. A forked child leaves that to its parent."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._source.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave."""
        self.close()

    # -- inside ------------------------------------------------------------------------------------

    def _act(
        self, action: str, kind: str, name: str, *, is_trial: bool, is_forced: bool = False
    ) -> Met:
        if os.getpid() != self._pid:
            raise SessionForkedError(
                "this Operator was made by the parent of this forked process: make a new one here"
            )
        with self._lock:
            if self._is_closed:
                raise SessionClosedError("this Operator was closed: make a new one")
            self._number += 1
            return self._ask(m.Operate(self._number, action, kind, name, is_forced, is_trial))

    def _ask(self, order: m.Operate) -> Met:
        """Send an order and wait for its answer.

        A scheduler that does not know this peer, after a long silence or its own restart, has not
        taken the order: it is sent again after the Hello.
        """
        source, end = self._source, clock() + self._timeout
        is_sent = False
        while True:
            for message in source.turn():
                if isinstance(message, m.Operated) and message.number == order.number:
                    if message.refused:
                        raise OperationRefusedError(message.refused)
                    return Met(message.count, message.met)
                if type(message) is m.Unknown:
                    is_sent = False
                elif isinstance(message, m.Refused | m.Goodbye):
                    raise ClusterUnreachableError(
                        f"the scheduler at {self._address} says: {message.reason}"
                    )
            if not is_sent:
                source.send([order])
                is_sent = True
            left = end - clock()
            if left <= 0:
                why = source.refusal or "is it running, and does it know this key?"
                raise ClusterUnreachableError(
                    f"no scheduler answered an operator at {self._address} within "
                    f"{self._timeout:g} s: {why}"
                )
            source.wait(min(left, LOOK_S))


def _only(**given: object) -> tuple[str, str]:
    """Return the one argument that is given, and its name; raises TypeError."""
    named = {kind: value for kind, value in given.items() if value is not None}
    if len(named) != 1:
        raise TypeError(f"give one of {', '.join(given)}")
    ((kind, value),) = named.items()
    if not isinstance(value, str) and not isinstance(value, bool) and hasattr(value, "__index__"):
        # Also a number of numpy.
        value = str(index(value))
    if not isinstance(value, str) or not value:
        raise TypeError(f"{kind} must be a name, not {shown(value)}")
    if len(value) > NAME_CHARS_MAX:
        raise ConfigError(f"{kind} must be a name, of {NAME_CHARS_MAX} characters at most")
    return kind, value
