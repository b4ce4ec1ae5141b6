"""Acts for operators: asks the scheduler what a deed would meet, and has it done."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tornado.web import RequestHandler

from scaler_cluster.client.operator import Operator
from scaler_cluster.errors import ClusterUnreachableError, OperationRefusedError, ScalerError
from scaler_cluster.links.link import as_reached
from scaler_cluster.wire import messages as m
from scaler_monitoring.dashboard import guard

if TYPE_CHECKING:
    from scaler_monitoring.dashboard.watch import Watch

AT_ONCE_MAX = 4
"""So many are asked at once: each waits in a thread for the scheduler."""
WAITING_MAX = 16
"""So many are there at most, with those that wait for such a thread."""
ANSWER_S = 5.0
"""A scheduler answers at once, unless it is gone."""
TOO_MANY = "others ask the scheduler for too much at once: try again in a moment"

KEYS = ("action", "kind", "name", "force", "trial")
"""What a request says, in the order of the fields of :class:`Asked`."""


@dataclass(frozen=True)
class Asked:
    """What somebody wants to be done, or to know what it would meet."""

    action: str
    kind: str
    name: str
    is_forced: bool
    is_trial: bool


def asked_in(body: bytes) -> Asked | None:
    """Return what a request asks for; None: nothing that can be done."""
    try:
        given = json.loads(body)
    except ValueError:
        return None
    if not isinstance(given, dict) or given.keys() != set(KEYS):
        return None
    action, kind, name, is_forced, is_trial = (given[key] for key in KEYS)
    are_texts = all(isinstance(one, str) for one in (action, kind, name))
    are_flags = all(isinstance(one, bool) for one in (is_forced, is_trial))
    if not (are_texts and are_flags and name and action in m.ACTIONS):
        return None
    if kind not in (m.WORK if action == m.CANCEL else m.PLACES):
        return None
    if is_forced and action != m.RESTART:
        return None
    return Asked(action, kind, name, is_forced, is_trial)


class Acting:
    """Acts with the keys of an operator on the cluster that a watch shows."""

    def __init__(self, watch: Watch, keys: str) -> None:
        self._watch = watch
        self._keys = keys
        self._threads = ThreadPoolExecutor(AT_ONCE_MAX, "operator")
        self._waiting = 0

    async def act(self, asked: Asked) -> str:
        """Do what is asked for, unless it is a trial; return what that meets, in words.

        Raises ScalerError with the reason if it is not done, or nobody knows whether it was.
        """
        snapshot = self._watch.model.snapshot
        if snapshot is None:
            raise OperationRefusedError("no scheduler was heard yet")
        if self._waiting >= WAITING_MAX:
            raise OperationRefusedError(TOO_MANY)
        address = as_reached(snapshot.scheduler.address, self._watch.source)
        self._waiting += 1
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._ask, address, asked)
        except ClusterUnreachableError as error:
            maybe = "" if asked.is_trial else "; it may have been done all the same"
            raise ClusterUnreachableError(f"{error}{maybe}") from None
        finally:
            self._waiting -= 1

    def _ask(self, address: str, asked: Asked) -> str:
        """Ask the scheduler, and wait for its answer, in a thread.

        As somebody new each time: it may be another scheduler, at another address, by now.
        """
        named: dict[str, Any] = {asked.kind: asked.name}
        if asked.action == m.RESTART:
            named["force"] = asked.is_forced
        with Operator(address, keys=self._keys, timeout=ANSWER_S) as operator:
            met = getattr(operator, asked.action)(**named, trial=asked.is_trial)
        return str(met.text)

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class ActHandler(RequestHandler):
    """Answers the buttons of operators."""

    def initialize(self, acting: Acting) -> None:
        self._acting = acting

    async def post(self) -> None:
        """Answer with what is met, or with why nothing is done."""
        if not guard.may_act.get():
            self.set_status(HTTPStatus.FORBIDDEN)
            self.finish({"refused": "only who has the link for operators may act"})
            return
        asked = asked_in(self.request.body)
        if asked is None:
            self.set_status(HTTPStatus.BAD_REQUEST)
            self.finish({"refused": "that cannot be asked for"})
            return
        try:
            answer = {"met": await self._acting.act(asked)}
        except ScalerError as error:
            answer = {"refused": str(error)}
        self.finish(answer)
