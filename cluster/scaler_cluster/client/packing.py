"""A graph as bytes: chains made one node, functions in a table, what is large stored."""

from __future__ import annotations

import contextlib
from array import array
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

from scaler_cluster import payload as payloads
from scaler_cluster.by_value import PROTOCOL
from scaler_cluster.core.client import RUN_BYTES_MAX
from scaler_cluster.errors import INTERRUPTS, PayloadError
from scaler_cluster.nodes import PREVIOUS, FunctionTable, FusedStep, Result
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.graph import Arrangement, Node
    from scaler_cluster.client.serializer import Serialization
    from scaler_cluster.core.client import Function
    from scaler_cluster.objects.sent import CallObjects
    from scaler_cluster.runtime.session import Session

PART_NODES_MAX = 4096
"""Nodes of one message at most: keeps turns short for other clients."""


class Packed:
    """A graph as it is sent."""

    def __init__(self, session: Session, options: m.TaskOptions, *, again: bool) -> None:
        self.session = session
        self.options = {options: None}
        """Those of its nodes, the common ones first."""
        self.kinds = array("I")
        """Which of the options each node has; empty: all have the common ones."""
        self._again = again
        self._call_objects: CallObjects | None = None
        self.function: Function = (b"", b"", (), "")
        self.table: object = None
        """Kept until the graph is asked for: the objects of its functions live as long."""
        self.held: list[bytes] = []
        self.payloads: list[bytes] = []
        self.ends = array("I")
        self.dependencies = array("I")
        self.uses = array("I")
        self.wanted = bytearray()
        self.inputs: list[ScalerFuture[Any]] = []
        self.objects: list[bytes] = []
        self.owners = array("I")
        self.numbers: dict[Any, int] = {}
        """Number of the node that makes each key (of a chain: of its last one)."""

    def call_objects(self) -> CallObjects:
        """Return what stores the large values of this graph."""
        if self._call_objects is None:
            self._call_objects = self.session.call_objects(again=self._again, steady=True)
        return self._call_objects

    def close(self) -> None:
        """Let go of what was stored for this."""
        self.session.release(self.held)
        self.table = None
        if self._call_objects is not None:
            self._call_objects.close()

    def messages(self, first: int, inputs: Sequence[int]) -> Iterator[m.Graph]:
        """Yield what to send; ``inputs`` are the tasks that the inputs are of."""
        count = len(self.payloads)
        options = tuple(self.options)
        start = low = owned = 0
        while start < count:
            stop = self._part_stop(start)
            high = self.ends[stop - 1]
            owner = owned
            while owner < len(self.owners) and self.owners[owner] < stop:
                owner += 1
            yield m.Graph(
                first,
                start,
                self.function[0],
                options,
                Batch.of(self.payloads[start:stop]),
                array("I", [end - low for end in self.ends[start:stop]]).tobytes(),
                self.dependencies[low:high].tobytes(),
                self.uses[start:stop].tobytes(),
                bytes(self.wanted[start:stop]),
                array("Q", inputs).tobytes() if not start else b"",
                tuple(self.objects[owned:owner]),
                self.owners[owned:owner].tobytes(),
                stop == count,
                self.kinds[start:stop].tobytes(),
            )
            start, low, owned, options = stop, high, owner, ()

    def _part_stop(self, start: int) -> int:
        stop = start
        nbytes = 0
        # The inputs come together, and a single node with them.
        least = 0 if start else len(self.inputs)
        count = min(len(self.payloads), start + max(PART_NODES_MAX, least + 1))
        while stop < count and (nbytes < RUN_BYTES_MAX or stop <= least):
            nbytes += len(self.payloads[stop])
            stop += 1
        return stop


def pack(
    session: Session,
    arrangement: Arrangement,
    wanted: Iterable[Any],
    options: m.TaskOptions,
    *,
    own_options: Mapping[Any, m.TaskOptions] | None = None,
    again: bool = False,
    serialization: Serialization | None = None,
    function: Callable[..., Any] | None = None,
) -> Packed:
    """Pickle a graph; raises PayloadError, which names the key at fault, StorageFull.

    Nodes have the same ``options``, but for those that have their own. With a ``function`` that is
    what its one node calls; else functions are in a table. The caller closes what it returns once
    that was asked for.
    """
    packed = Packed(session, options, again=again)
    nodes, futures, aliases = arrangement.nodes, arrangement.futures, arrangement.aliases
    if aliases:
        for node in nodes.values():
            node.rename(arrangement.end_of)
    every = [node.dependencies for node in nodes.values()]
    uses = Counter(chain.from_iterable(below if len(below) < 2 else {*below} for below in every))
    if futures:
        inputs = (futures[one] for one in chain.from_iterable(every) if one in futures)
        packed.inputs = list(dict.fromkeys(inputs))
    ends = {arrangement.end_of(key) for key in wanted}
    packer = _Packer(packed, arrangement.values, serialization, function)
    own = own_options or {}
    try:
        packer.begin(futures)
        links: list[tuple[Any, Node]] = []
        last = None
        for key, node in nodes.items():
            if links and (
                uses[last] != 1
                or not _continues(last, node, nodes, ends)
                or (own and own.get(key) != own.get(last))
            ):
                packer.put(links)
                links = []
            last = key
            links.append((key, node))
        if links:
            packer.put(links)
        packer.finish(ends)
        if own:
            packer.add_options(own)
    except BaseException:
        packed.close()
        raise
    return packed


def _continues(last: Any, node: Node, nodes: dict[Any, Node], ends: set[Any]) -> bool:
    """Return True if a node is the only one that needs what the one before it made."""
    if last not in node.dependencies or last in ends or node.nested:
        return False
    return all(one == last or one not in nodes for one in node.dependencies)


class _Packer:
    """Pickles the nodes of a graph, one after the other."""

    def __init__(
        self,
        packed: Packed,
        values: dict[Any, Any],
        serialization: Serialization | None,
        function: Callable[..., Any] | None,
    ) -> None:
        self._packed = packed
        self._values = values
        self._serialization = serialization
        self._single = function
        self._numbers = packed.numbers
        self._dependencies: list[int] = []
        self._ends: list[int] = []
        self._uses: list[int] = []
        self._functions: dict[int, int] = {}
        """Index of each function in the table, by its identity."""
        self._callables: list[Callable[..., Any]] = []
        self._keys: list[Any] = []
        """The key that used each first."""
        self._keep = payloads.keep_small if packed.session.connection.stores else None

    def begin(self, futures: dict[Any, ScalerFuture[Any]]) -> None:
        """Let the inputs be the first nodes."""
        packed, numbers = self._packed, self._numbers
        place = {future: index for index, future in enumerate(packed.inputs)}
        for key, future in futures.items():
            if future in place:
                numbers[key] = place[future]
        packed.payloads += [b""] * len(packed.inputs)
        self._ends += [0] * len(packed.inputs)
        self._uses += [0] * len(packed.inputs)

    def put(self, branch: list[tuple[Any, Node]]) -> None:
        """Pickle the nodes of a chain as one."""
        numbers, done = self._numbers, self._packed.payloads
        dependencies: dict[int, None] = {}
        if len(branch) == 1:
            key, node = branch[0]
            links: FusedStep | list[FusedStep] = self._link(key, node, dependencies)
        else:
            links = []
            for key, node in branch:
                links.append(self._link(key, node, dependencies))
                numbers[key] = PREVIOUS
            for one, _ in branch[:-1]:
                del numbers[one]
        numbers[key] = len(done)
        try:
            payload = payloads.c_dumps(links, PROTOCOL, buffer_callback=self._keep)
            is_plain = payloads.is_plain(payload)
        except INTERRUPTS:
            raise
        except BaseException:
            # The longer way says what is wrong, if anything is.
            is_plain = False
        if not is_plain:
            payload = self._pack_slowly(branch, links)
        done.append(payload)
        self._dependencies += dependencies
        self._ends.append(len(self._dependencies))
        uses = self._uses
        uses.append(0)
        for number in dependencies:
            uses[number] += 1

    def _link(self, key: Any, node: Node, dependencies: dict[int, None]) -> FusedStep:
        """Return a node as it is pickled, and add what it depends on."""
        numbers, args = self._numbers, node.args
        if self._serialization is not None:
            with self._naming(key):
                node.serialize(self._serialization)
        filled: list[int] = []
        pairs = iter(node.holes)
        for index, one in zip(pairs, pairs, strict=True):
            number = numbers.get(one)
            if number is None:
                args[index] = self._value(one)
                continue
            args[index] = None
            filled.append(index)
            filled.append(number)
            if number >= 0:
                dependencies[number] = None
        for nested in node.nested:
            number = numbers.get(nested.key)
            if number is None:
                nested.value = self._values[nested.key]
                continue
            nested.value = Result(number)
            dependencies[number] = None
        function = self._functions.get(id(node.function))
        if function is None and self._single is None:
            function = self._add_function(key, node.function)
        return function, args, tuple(filled), node.kwargs

    def finish(self, ends: set[Any]) -> None:
        """Pickle the functions, and note what is wanted."""
        packed = self._packed
        packed.dependencies = array("I", self._dependencies)
        packed.ends, packed.uses = array("I", self._ends), array("I", self._uses)
        packed.wanted = bytearray(len(packed.payloads))
        for key in ends:
            number = self._numbers.get(key, -1)
            if number >= len(packed.inputs):
                packed.wanted[number] = 1
                packed.uses[number] += 1
        if self._single is not None:
            packed.function = packed.session.function(self._single, packed.held)
            packed.table = self._single
            return
        try:
            table = FunctionTable(self._callables)
            packed.function = packed.session.function(table, packed.held)  # type: ignore[arg-type]
            packed.table = table
        except PayloadError:
            for key, function in zip(self._keys, self._callables, strict=True):
                with self._naming(key):
                    payloads.dumps(function, payloads.Collector())
            raise

    def add_options(self, own: Mapping[Any, m.TaskOptions]) -> None:
        """Note the options of nodes that have their own."""
        packed = self._packed
        packed.kinds = array("I", bytes(4 * len(packed.payloads)))
        known = {one: kind for kind, one in enumerate(packed.options)}
        for key, number in self._numbers.items():
            if number >= len(packed.inputs) and (options := own.get(key)) is not None:
                packed.kinds[number] = known.setdefault(options, len(known))
        packed.options = dict.fromkeys(known)

    def _value(self, key: Any) -> Any:
        value = self._values[key]
        if self._serialization is None:
            return value
        with self._naming(key):
            return self._serialization.value(value)

    def _add_function(self, key: Any, function: Callable[..., Any]) -> int:
        number = self._functions[id(function)] = len(self._callables)
        if self._serialization is not None:
            with self._naming(key):
                function = self._serialization.function(function)
        self._callables.append(function)
        self._keys.append(key)
        return number

    def _pack_slowly(
        self, branch: list[tuple[Any, Node]], value: FusedStep | list[FusedStep]
    ) -> bytes:
        """Pickle what is large, or what C pickle cannot do."""
        packed = self._packed
        links = value if isinstance(value, list) else [value]
        try:
            if not packed.session.connection.stores:
                return payloads.dumps(value)
            objects = packed.call_objects()
            for index, (function, args, holes, kwargs) in enumerate(links):
                if kwargs:
                    kwargs = dict(zip(kwargs, objects.shrink(tuple(kwargs.values())), strict=True))  # noqa: PLW2901
                links[index] = function, list(objects.shrink(tuple(args))), holes, kwargs
            collector = payloads.Collector()
            payload = payloads.dumps(links[0] if len(links) == 1 else links, collector)
            ids = objects.hold(collector.buffers)
        except PayloadError:
            self._blame(branch)
            with self._naming(branch[-1][0]):
                raise
        packed.objects += ids
        packed.owners.extend([len(packed.payloads)] * len(ids))
        return payload

    def _blame(self, branch: list[tuple[Any, Node]]) -> None:
        """Raise PayloadError that names what cannot be pickled, if it is known: data, or a node."""
        for key, node in branch:
            for one in node.dependencies:
                value = self._values.get(one)
                if type(value) is not payloads.ObjectReference:
                    with self._naming(one):
                        payloads.dumps(value, payloads.Collector())
            with self._naming(key):
                payloads.check_call(node.function, node.args, node.kwargs or {})

    @contextlib.contextmanager
    def _naming(self, key: Any) -> Iterator[None]:
        """Add a key to the text of an error; a single call has none."""
        try:
            yield
        except PayloadError as error:
            if self._single is not None:
                raise
            raise PayloadError(f"node {key!r}: {error}") from error.__cause__
