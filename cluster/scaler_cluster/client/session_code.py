"""The code that a client has its workers use: files, plugins and variables of the environment.

Each function of the client carries it from then on. So a worker that starts later, on another
machine, or after another scheduler has begun, has it as well; and a worker that runs no task of
this client never has it.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scaler_cluster.client.present_workers import call_on_workers, present_workers
from scaler_cluster.client.uploads import UPLOAD_BYTES_MAX
from scaler_cluster.errors import CodeError, ConfigError, TaskLostError
from scaler_cluster.objects.unchanging import unchanging
from scaler_cluster.pickling.code_bundle import Arrival, Bundle, CarriedCode, Part
from scaler_cluster.pickling.payload import dumps
from scaler_cluster.texts import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler_cluster.client.session import Session
    from scaler_cluster.client.uploads import Upload

DIGEST_BYTES = 16
REASONS_SHOWN = 3


_codes: WeakKeyDictionary[Session, SessionCode] = WeakKeyDictionary()


def code_of(session: Session) -> SessionCode:
    """Return what keeps the code of a session."""
    return _codes.setdefault(session, SessionCode())


class SessionCode:
    """Keeps what one client has uploaded and registered; usable from several threads."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        """Held while a change is taken to the workers."""
        self._bundle = Bundle(os.urandom(16), 0)
        self._contents: dict[Part, memoryview] = {}
        self._variables: dict[str, dict[str, str]] = {}
        """Of the environment, by the name of their registration."""
        self._arrival: Arrival | None = None
        """What has brought the code to the workers: the contents stay stored as long as this."""

    def upload(self, session: Session, upload: Upload) -> None:
        """Have each worker use these modules, in place of those of the same upload before."""
        digest = blake2b(upload.archive, digest_size=DIGEST_BYTES).digest()
        part = Part(False, upload.name, digest, upload.modules)
        with self._changing:
            self._change(
                session, _with(self._contents, part, unchanging(upload.archive)), self._variables
            )

    def register(self, session: Session, name: str, plugin: object) -> None:
        """Have each worker set up a plugin, in place of the one that had this name."""
        content = dumps(plugin)
        digest = blake2b(content, digest_size=DIGEST_BYTES).digest()
        with self._changing:
            part = Part(True, name, digest)
            variables = _without(self._variables, name)
            self._change(session, _with(self._contents, part, unchanging(content)), variables)

    def set_variables(self, session: Session, name: str, variables: Mapping[str, str]) -> None:
        """Have each worker set these variables of its environment while it runs tasks of this."""
        with self._changing:
            rest = _without_plugin(self._contents, name)
            self._change(session, rest, {**_without(self._variables, name), name: dict(variables)})

    def unregister(self, session: Session, name: str) -> None:
        """Have each worker tear down what was registered by this name; raises ConfigError."""
        with self._changing:
            rest = _without_plugin(self._contents, name)
            variables = _without(self._variables, name)
            if len(rest) == len(self._contents) and len(variables) == len(self._variables):
                raise ConfigError(f"no plugin was registered as {name!r}")
            self._change(session, rest, variables)

    def _change(
        self,
        session: Session,
        contents: dict[Part, memoryview],
        variables: dict[str, dict[str, str]],
    ) -> None:
        """Let functions carry this from now on, once each worker that is there has it.

        If one cannot take it, all stays as it was.
        """
        present_workers(session)
        if sum(one.nbytes for one in contents.values()) > UPLOAD_BYTES_MAX:
            raise ConfigError(
                f"all that a client uploads and registers may have {UPLOAD_BYTES_MAX} bytes "
                "together, packed: install some of it with the workers"
            )
        merged = {name: one for each in variables.values() for name, one in each.items()}
        revision = self._bundle.revision + 1
        bundle = replace(self._bundle, revision=revision, parts=tuple(contents), variables=merged)
        before = self._bundle, self._contents, self._variables
        code = CarriedCode(bundle, tuple(contents.values()))
        arrival = Arrival(code)
        try:
            # Other threads submit tasks meanwhile: none of them depends on how this ends.
            _bring(session, arrival)
            self._bundle, self._contents, self._variables = bundle, contents, variables
            session.pickler.carry(code)
        except BaseException:
            back = replace(before[0], revision=revision + 1)
            self._bundle, self._contents, self._variables = back, *before[1:]
            session.pickler.carry(CarriedCode(back, tuple(self._contents.values())))
            raise
        self._arrival = arrival


def _bring(session: Session, arrival: Arrival) -> None:
    """Have each worker that is there use code; raises CodeError if one cannot."""
    outcomes = call_on_workers(session, arrival)
    failed = {
        worker.name: outcome.error
        for worker, outcome in outcomes.items()
        if outcome.error is not None and not isinstance(outcome.error, TaskLostError)
    }
    if failed:
        raise CodeError(_why(failed, len(outcomes)), failed)


def _with(
    contents: dict[Part, memoryview], part: Part, content: memoryview
) -> dict[Part, memoryview]:
    """Return contents with one more, before all others of its kind: the last upload wins."""
    rest = {one: it for one, it in contents.items() if one[:2] != part[:2]}
    return {**rest, part: content}


def _without_plugin(contents: dict[Part, memoryview], name: str) -> dict[Part, memoryview]:
    return {one: it for one, it in contents.items() if not (one.is_plugin and one.name == name)}


def _without(variables: dict[str, dict[str, str]], name: str) -> dict[str, dict[str, str]]:
    return {one: it for one, it in variables.items() if one != name}


def _why(failed: Mapping[str, BaseException], count: int) -> str:
    told = [show(error, str) for error in islice(failed.values(), REASONS_SHOWN)]
    if len(failed) > len(told):
        told.append(f"and {len(failed) - len(told)} more, see the attribute failed")
    return f"{len(failed)} of {count} workers cannot use it, so none does: {'; '.join(told)}"
