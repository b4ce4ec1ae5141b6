"""Graphs of a session: how they are asked for, and how their inputs are supplied.

A future that is passed on is an *input*. Of one that has come back the result is sent as it came;
of one that is under way the scheduler takes the result, or asks for it if that is on its way here.
"""

from __future__ import annotations

import contextlib
import gc
from functools import partial
from typing import TYPE_CHECKING, Any

from scaler_cluster import payload as payloads
from scaler_cluster.client.future import PLAIN, ScalerFuture
from scaler_cluster.client.graph import Arrangement
from scaler_cluster.client.packing import pack
from scaler_cluster.core.graph import SUPPLIED
from scaler_cluster.errors import MissingObjects, PayloadError, StorageFull, StorageUnreachable
from scaler_cluster.exceptions import dumps_exception
from scaler_cluster.nodes import Call
from scaler_cluster.runtime.interrupts import deferred
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scaler_cluster.client.packing import Packed
    from scaler_cluster.client.serializer import Serialization
    from scaler_cluster.runtime.session import Session


FLUSH_NODES = 128
"""Single nodes that are sent by the submitting thread; fewer wait for the I/O thread."""


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from looking again and again at what is made and stays.

    With 100,000 nodes that takes as long as making them. It is the process's; so not for long.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class SessionGraphs:
    """Asks for graphs, and answers for their inputs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(
        self,
        graph: Mapping[Any, Any],
        keys: list[Any],
        options: m.TaskOptions,
        serialization: Serialization | None = None,
        *,
        own_options: Mapping[Any, m.TaskOptions] | None = None,
        again: bool = False,
    ) -> dict[Any, ScalerFuture[Any]]:
        """Ask for keys of a graph; return their futures, in order. See :meth:`Client.get`."""
        session = self._session
        session.check_usable()
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise KeyError(f"{twice!r} is wanted twice")
        with collector_paused():
            return self._get(graph, keys, options, serialization, own_options, again=again)

    def _get(
        self,
        graph: Mapping[Any, Any],
        keys: list[Any],
        options: m.TaskOptions,
        serialization: Serialization | None,
        own_options: Mapping[Any, m.TaskOptions] | None,
        *,
        again: bool,
    ) -> dict[Any, ScalerFuture[Any]]:
        session = self._session
        arrangement = Arrangement(graph, keys)
        values, nodes = arrangement.values, arrangement.nodes
        ends = {key: arrangement.end_of(key) for key in keys}
        for key, end in ends.items():
            if type(values.get(end)) is payloads.ObjectReference:
                # What it stands for is on the cluster.
                ends[key] = arrangement.bring(end)
        made: dict[Any, ScalerFuture[Any]] = {}
        if nodes:
            packed = pack(session, arrangement, ends.values(), options, own_options=own_options,
                          again=again, serialization=serialization)  # fmt: skip
            try:
                wanted = {end: packed.numbers[end] for end in ends.values() if end in nodes}
                made = self._submit(packed, wanted, is_single=False)
            finally:
                packed.close()
        futures: dict[Any, ScalerFuture[Any]] = {}
        for key, end in ends.items():
            if end in made:
                futures[key] = made[end]
            elif end in arrangement.futures:
                futures[key] = arrangement.futures[end]
            else:
                futures[key] = session.future_class(session)
                futures[key].set_result(values[end])
                if options.profiling:
                    futures[key]._profiled(0.0, 0.0, 0)
        return futures

    def submit_linked(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: m.TaskOptions,
        *,
        again: bool,
    ) -> ScalerFuture[Any]:
        """Ask for a call that takes the results of futures, once they are there."""
        arrangement = Arrangement({}, ())
        arrangement.nodes[0] = arrangement.call(Call(function, args, kwargs))
        try:
            packed = pack(self._session, arrangement, (0,), options, again=again, function=function)
            try:
                wanted = {0: len(packed.inputs)}
                return self._submit(packed, wanted, is_single=True)[0]
            finally:
                packed.close()
        except (PayloadError, StorageFull, StorageUnreachable) as error:
            return self._session.failed(error)

    def _submit(
        self, packed: Packed, wanted: dict[Any, int], *, is_single: bool
    ) -> dict[Any, ScalerFuture[Any]]:
        """Return the futures of the wanted nodes, by what they are wanted as.

        The number of a single node comes from those of single tasks: there are fewer calls.
        """
        session, connection = self._session, self._session.connection
        core = session.core
        futures: dict[Any, ScalerFuture[Any]] = {}
        for key in wanted:
            futures[key] = session.future_class(session)
        inputs: list[int] = []
        for future in packed.inputs:
            if not future.done() and future._session is not session:
                raise PayloadError("a future of another client, which has not come back")
            inputs.append(SUPPLIED if future.done() else future._task)
        with deferred:
            with connection.lock:
                session.check_usable()
                first = core.reserve(len(packed.payloads)) if is_single else core.open_graph()
            for key, node in wanted.items():
                futures[key]._task = first + node
            parts = packed.messages(first, inputs)
            asking = packed.inputs if any(task != SUPPLIED for task in inputs) else ()
            with connection.lock:
                session.check_usable()
                waiters: dict[int, object] = {one._task: one for one in futures.values()}
                unsent = core.unsent_messages
                core.submit_graph(packed.function, next(parts), waiters, asking)
            for node, task in enumerate(inputs):
                if task == SUPPLIED:
                    self.supply(first + node, packed.inputs[node])
            if is_single and unsent < FLUSH_NODES:
                # The I/O thread sends it, with what is submitted until it comes.
                if not unsent:
                    session.wake()
                return futures
            session.push()
            for part in parts:
                # One by one: the scheduler takes one in while the next is made.
                with connection.lock:
                    core.say(part)
                session.push()
        return futures

    def supply_unmet(self) -> None:
        """Send the inputs that the scheduler asks for."""
        session = self._session
        with session.connection.lock:
            unmet: list[tuple[int, Any]] = session.core.unmet
            session.core.unmet = []
        for task, future in unmet:
            if future.done():
                self._supply_late(task, future)
            else:
                # It has arrived, but has not been settled yet by the thread that took it in.
                future.add_done_callback(partial(self._supply_late, task))

    def _supply_late(self, task: int, future: ScalerFuture[Any]) -> None:
        self.supply(task, future)
        self._session.wake()

    def supply(self, task: int, future: ScalerFuture[Any]) -> None:
        """Send what became of a future, as that of the node that this task is."""
        held: list[bytes] = []
        try:
            message = _supply_of(task, future, self._session, held)
        except (PayloadError, StorageFull, StorageUnreachable, MissingObjects) as error:
            data, detail = dumps_exception(error, error.__traceback__)
            message = m.ProvideInputs(task, m.FAILED_EXCEPTION, data, (), detail)
        with self._session.connection.lock:
            self._session.core.say(message)
        self._session.release(held)


def _supply_of(
    task: int, future: ScalerFuture[Any], session: Session, held: list[bytes]
) -> m.ProvideInputs:
    """Return what tells the scheduler what became of a future, which is done.

    Objects that were stored for it are added to ``held``. Raises PayloadError, StorageFull.
    """
    if future.cancelled():
        return m.ProvideInputs(task, m.INPUT_CANCELLED, b"")
    payload = future._payload
    if isinstance(payload, m.Failed):
        return m.ProvideInputs(task, payload.kind, payload.payload, (), payload.detail)
    is_ours = future._session is session
    if type(payload) in PLAIN and len(payload) < payloads.OBJECT_BYTES:
        return m.ProvideInputs(task, "", payload)
    if is_ours and hasattr(payload, "objects"):
        return m.ProvideInputs(task, "", payload.payload, payload.objects)
    error = future.exception()
    if error is not None:
        trace, detail = dumps_exception(error, error.__traceback__)
        return m.ProvideInputs(task, m.FAILED_EXCEPTION, trace, (), detail)
    if not session.connection.stores:
        return m.ProvideInputs(task, "", payloads.dumps(future.result()))
    collector = payloads.Collector()
    data = payloads.dumps_result(future.result(), collector, None)
    held += session.connection.stored().hold(collector.buffers)
    return m.ProvideInputs(task, "", data, tuple(held))
