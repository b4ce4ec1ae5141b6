"""Tasks that run on the stack of the task that waits for them."""

from __future__ import annotations

import signal
import sys
import threading
from functools import partial
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster.core.client.requests import FUNCTIONS_MAX
from scaler_cluster.core.worker.kept_results import KeptResults
from scaler_cluster.core.worker.subtasks import HandedOver
from scaler_cluster.core.worker.work import FunctionEntry
from scaler_cluster.errors import TaskInterrupted
from scaler_cluster.pickling import payload as payloads
from scaler_cluster.pickling.named import pack, unpack_call
from scaler_cluster.pickling.nodes import NodeLoader
from scaler_cluster.process.interrupts import TaskExpired, deferred
from scaler_cluster.runtime import worker_code
from scaler_cluster.runtime.failures import describe_failure, describe_named_failure
from scaler_cluster.runtime.functions import enter, go_back
from scaler_cluster.runtime.profile import measured
from scaler_cluster.runtime.task_context import Scope, current
from scaler_cluster.runtime.task_interrupts import INTERRUPT_SIGNAL
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.client.call_pickler import CallPickler
    from scaler_cluster.core.client.requests import Function
    from scaler_cluster.core.worker.subtasks import Subtask
    from scaler_cluster.runtime.profile import Took
    from scaler_cluster.runtime.task_host import TaskHost

LEVEL_FRAMES = 30
"""By so much the recursion limit is raised for each task on the stack, of which some ten are ours.
All together stay well below the 20,000 frames that a stack of 8 MiB holds on Python 3.10."""
REPEAT_S = 0.05
"""A task whose time is over is interrupted again, until it was in a place where that works."""


class RunningSession(Protocol):
    """What a task that runs on the stack of another one needs of their session."""

    @property
    def pickler(self) -> CallPickler:
        """What pickles the functions that tasks submit."""

    def view(self, one: bytes) -> memoryview:
        """Return the bytes of an object that a task stored."""

    def remember(self, digest: bytes, entry: FunctionEntry) -> None:
        """Note what a function was unpickled from just now."""

    def end(self, scope: Scope) -> None:
        """A task has ended: give up what it submitted and has not come back."""

    def settle(self, child: Subtask, outcome: Any, took_s: float, profiles: Sequence[Took]) -> None:
        """Hand a task's outcome on; None: it was interrupted, with the task that waits for it."""


class InlineRunner:
    """Runs tasks as if this worker had been sent them: from their pickles, to a pickle."""

    def __init__(self, session: RunningSession, shell: TaskHost) -> None:
        self._session = session
        self._shell = shell
        self._functions: dict[bytes, FunctionEntry] = {}
        self._recursion_limit = sys.getrecursionlimit()
        self._limited: list[Scope] = []
        """Tasks with a timeout on the stack of the main thread, the lowest first."""

    def begin(self) -> None:
        """The worker was given a task, which may have a recursion limit of its own."""
        self._recursion_limit = sys.getrecursionlimit()

    def run(self, child: Subtask, above: Scope) -> None:
        """Run a task for one that waits for it."""
        scope = Scope(child.options, above.level + 1)
        limit = self._recursion_limit + scope.level * LEVEL_FRAMES
        if sys.getrecursionlimit() < limit:
            sys.setrecursionlimit(limit)
        start = clock()
        outcome: Any = None
        profiles: list[Took] = []
        token = current.set(scope)
        code = worker_code.active
        try:
            if child.options.timeout_s is not None:
                self._limit(scope, child.options.timeout_s)
            outcome = self._call(child, profiles)
        except TaskExpired as error:
            if error.args[0] is not scope and not error.args[0].is_over:
                raise
            detail = {"timeout_s": child.options.timeout_s}
            outcome = m.Failed(child.first, m.FAILED_TIMEOUT, b"", detail)
        finally:
            with deferred:
                self._shell.end_if_forked()
                current.reset(token)
                self._unlimit(scope)
                # The task that waits goes on with its own.
                go_back(code, self._session)
                self._session.end(scope)
                if above.level == 0:
                    sys.setrecursionlimit(self._recursion_limit)
                self._session.settle(child, outcome, clock() - start, profiles)

    def _limit(self, scope: Scope, timeout_s: float) -> None:
        """Let a task on the main thread's stack be interrupted when its time is over."""
        over = scope.over = threading.Event()
        self._limited.append(scope)

        def expire() -> None:
            if not over.wait(timeout_s):
                scope.expired = True
            while scope.expired:
                signal.pthread_kill(threading.main_thread().ident or 0, INTERRUPT_SIGNAL)
                over.wait(REPEAT_S)

        threading.Thread(target=expire, name="scaler-timeout", daemon=True).start()

    def _unlimit(self, scope: Scope) -> None:
        if scope.over is not None:
            scope.expired = False
            scope.over.set()
            self._limited.remove(scope)

    @property
    def has_expired(self) -> bool:
        """Return True if :meth:`raise_expired` raises."""
        return any(scope.expired for scope in self._limited)

    def raise_expired(self) -> None:
        """Interrupt a task whose time is over, and what stands on it; in the main thread."""
        for scope in self._limited:
            if scope.expired:
                scope.expired = False
                raise TaskExpired(scope)

    def _call(self, child: Subtask, profiles: list[Took]) -> bytes | m.Failed:
        """Run a task as if this worker had been sent it; return its pickled result or failure."""
        tries = 0
        dumps: Callable[[object], bytes] = payloads.dumps
        while True:
            failure, culprit = m.FAILED_DESERIALIZE, "the function"
            try:
                function = self._load(child.function)
                culprit = "the arguments"
                if type(child) is HandedOver:
                    function, args, kwargs = self._load_node(child, function)
                elif child.call == m.CALL_NAMED:
                    dumps = pack
                    args, kwargs = unpack_call(child.batch.data)
                else:
                    data = child.batch.data
                    args = payloads.loads(data, buffers=self._views(child.objects))
                if child.options.profiling:
                    function = measured(function, profiles.append)
                failure = m.FAILED_EXCEPTION
                if child.call == m.CALL_ARGS:
                    value = function(*args)
                elif child.call in (m.CALL_NODE, m.CALL_NAMED):
                    value = function(*args, **kwargs)
                elif child.call == m.CALL_KWARGS:
                    value = function(*args[0], **args[1])
                else:
                    value = [function(*one) for one in args]
                failure = m.FAILED_RESULT
                return dumps(value)
            except TaskInterrupted:
                raise
            except BaseException as error:
                if failure == m.FAILED_EXCEPTION and tries < child.options.retries:
                    tries += 1
                    continue
                where = self._shell.where
                if child.call == m.CALL_NAMED:
                    return m.Failed(child.first, *describe_named_failure(failure, error, where))
                return m.Failed(child.first, *describe_failure(failure, error, culprit, where))

    def _load_node(self, node: HandedOver, functions: Any) -> tuple[Any, ...]:
        """Return function, arguments and keyword arguments of a node."""
        map_segments = self._shell.map_segments
        loads = partial(payloads.loads, buffers=map_segments(node.objects))
        loader = NodeLoader(
            functions, node.values, KeptResults(), loads, map_segments, map_segments
        )
        return loader.load(next(iter(node.batch)))

    def _load(self, packed: Function) -> Callable[..., Any]:
        digest, payload, objects, _ = packed
        entry = self._functions.get(digest) or self._shell.loaded_function(digest)
        if entry is None:
            entry = FunctionEntry(payload, objects)
            if len(self._functions) >= FUNCTIONS_MAX:
                self._functions.clear()
            self._functions[digest] = entry
        enter(entry, digest, self._views, self._session)
        return entry.call  # type: ignore[return-value]

    def _views(self, objects: tuple[bytes, ...]) -> list[memoryview]:
        return [self._session.view(one) for one in objects]
