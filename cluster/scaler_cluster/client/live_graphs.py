"""Graphs of a session: how they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster.client.future import FutureOwner, ScalerFuture
from scaler_cluster.client.graph import Arrangement, collector_paused
from scaler_cluster.client.named_calls import NamedFuture
from scaler_cluster.client.packing import pack
from scaler_cluster.errors import PayloadError, StorageFullError, StorageUnreachableError
from scaler_cluster.pickling import payload as payloads
from scaler_cluster.process.interrupts import deferred
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scaler_cluster.client.call_pickler import CallPickler
    from scaler_cluster.client.connection import Connection
    from scaler_cluster.client.input_supplier import InputSupplier
    from scaler_cluster.client.packing import Packed
    from scaler_cluster.client.serializer import Serialization

FLUSH_NODES = 128
"""Single nodes that are sent by the submitting thread; fewer wait for the I/O thread."""


class GraphSession(FutureOwner, Protocol):
    """What graphs need of the session that asks for them."""

    pickler: CallPickler
    supplier: InputSupplier

    @property
    def connection(self) -> Connection:
        """What the graphs are sent through."""

    @property
    def future_class(self) -> type[ScalerFuture[Any]]:
        """Class of the futures of this session."""

    def check_usable(self) -> None:
        """Raise if no task can be submitted."""

    def failed(self, error: Exception) -> ScalerFuture[Any]:
        """Return the future of a call that could not be asked for."""

    def push(self) -> None:
        """Send what is to be sent, and take in what has arrived meanwhile."""

    def wake(self) -> None:
        """Let the I/O thread send what there is to send."""


class SessionGraphs:
    """Asks for graphs."""

    def __init__(self, session: GraphSession) -> None:
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
        kind: type[Arrangement] = Arrangement,
        share: bool = False,
    ) -> dict[Any, ScalerFuture[Any]]:
        """Ask for keys of a graph; return their futures, in order. See :meth:`Client.get`.

        The ``kind`` of arrangement knows how the graph is written.
        """
        session = self._session
        session.check_usable()
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise KeyError(f"{twice!r} is wanted twice")
        with collector_paused():
            arrangement = kind(graph, keys)
            own = arrangement.by_number(own_options) if own_options else None
            return self._ask(
                arrangement, keys, options, serialization, own, again=again, share=share
            )

    def _ask(
        self,
        arrangement: Arrangement,
        keys: list[Any],
        options: m.TaskOptions,
        serialization: Serialization | None,
        own_options: Mapping[int, m.TaskOptions] | None,
        *,
        again: bool,
        share: bool,
    ) -> dict[Any, ScalerFuture[Any]]:
        session, values = self._session, arrangement.values
        ends = {key: arrangement.numbers[key] for key in keys}
        for key, end in ends.items():
            if type(values.get(end)) is payloads.ObjectReference:
                # What it stands for is on the cluster.
                ends[key] = arrangement.bring(end)
        made: dict[int, ScalerFuture[Any]] = {}
        if arrangement.order:
            packed = pack(
                session.pickler, arrangement, ends.values(), options,
                own_options=own_options, again=again, serialization=serialization,
            )  # fmt: skip
            packed.is_shared = share
            try:
                is_call = arrangement.steps
                wanted = {end: packed.nodes[end] for end in ends.values() if is_call[end]}
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
        call = arrangement.call(function, args, kwargs)
        try:
            pickler = self._session.pickler
            packed = pack(pickler, arrangement, (call,), options, again=again, function=function)
            try:
                wanted = {call: packed.nodes[call]}
                return self._submit(packed, wanted, is_single=True)[call]
            finally:
                packed.close()
        except (PayloadError, StorageFullError, StorageUnreachableError) as error:
            return self._session.failed(error)

    def _submit(
        self, packed: Packed, wanted: dict[int, int], *, is_single: bool
    ) -> dict[int, ScalerFuture[Any]]:
        """Return the futures of the wanted nodes, by what they are wanted as."""
        session, connection = self._session, self._session.connection
        futures: dict[int, ScalerFuture[Any]] = {}
        for key in wanted:
            futures[key] = session.future_class(session)
        inputs: list[int] = []
        for future in packed.inputs:
            if not future.done():
                if future._session is not session:
                    raise PayloadError("a future of another client, which has not come back")
                if isinstance(future, NamedFuture):
                    # Those who take its result would unpickle it.
                    raise PayloadError(
                        "the future of a named call cannot be an argument before it is done: pass "
                        "its result"
                    )
            inputs.append(m.SUPPLIED if future.done() else future._task)
        with deferred:
            first = connection.number_nodes(len(packed.payloads), is_single=is_single)
            for key, node in wanted.items():
                futures[key]._task = first + node
            parts = packed.messages(first, inputs)
            waiters: dict[int, object] = {one._task: one for one in futures.values()}
            unsent = connection.submit_graph(packed.function, next(parts), waiters, packed.inputs)
            for node, task in enumerate(inputs):
                if task == m.SUPPLIED:
                    session.supplier.supply(first + node, packed.inputs[node])
            if is_single and unsent < FLUSH_NODES:
                # The I/O thread sends it, with what is submitted until it comes.
                if not unsent:
                    session.wake()
                return futures
            session.push()
            for part in parts:
                # One by one: the scheduler takes one in while the next is made.
                connection.go_on_with(part)
                session.push()
        return futures
