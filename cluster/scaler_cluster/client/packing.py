"""A graph as bytes: chains made one node, functions in a table, what is large stored."""

from __future__ import annotations

import contextlib
import pickle
from array import array
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

from scaler_cluster.client.layer_names import LayerNames
from scaler_cluster.core.client.requests import RUN_BYTES_MAX
from scaler_cluster.errors import INTERRUPTS, PayloadError
from scaler_cluster.pickling import payload as payloads
from scaler_cluster.pickling.by_value import PROTOCOL
from scaler_cluster.pickling.nodes import PREVIOUS, FunctionTable, FusedStep
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scaler_cluster.client.call_pickler import CallPickler
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.graph import Arrangement, Step
    from scaler_cluster.client.serializer import Serialization
    from scaler_cluster.core.client.requests import Function
    from scaler_cluster.objects.sent import CallObjects

_NO_NODE = -2
PART_NODES_MAX = 4096
"""Nodes of one message at most: keeps turns short for other clients."""


class Packed:
    """A graph as it is sent."""

    def __init__(self, pickler: CallPickler, options: m.TaskOptions, *, again: bool) -> None:
        self.pickler = pickler
        self.is_shared = False
        """Nodes on one worker get the very objects that other nodes returned."""
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
        self.names: tuple[str, ...] = ()
        """What its nodes are called; empty: as its function."""
        self.layers = b""
        """Which of the names each node has; empty: all have the first."""
        self.objects: list[bytes] = []
        self.owners = array("I")
        self.nodes: list[int] = []
        """For each number of the arrangement, the node (of a chain: of its last call) that makes
        it; negative: none."""

    def call_objects(self) -> CallObjects:
        """Return what stores the large values of this graph."""
        if self._call_objects is None:
            self._call_objects = self.pickler.call_objects(again=self._again, steady=True)
        return self._call_objects

    def close(self) -> None:
        """Let go of what was stored for this."""
        self.pickler.release(self.held)
        self.table = None
        if self._call_objects is not None:
            self._call_objects.close()

    def messages(self, first: int, inputs: Sequence[int]) -> Iterator[m.Graph]:
        """Yield what to send; ``inputs`` are the tasks that the inputs are of."""
        count = len(self.payloads)
        options, names = tuple(self.options), self.names
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
                self.is_shared,
                names,
                self.layers[start:stop],
            )
            start, low, owned, options, names = stop, high, owner, (), ()

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
    pickler: CallPickler,
    arrangement: Arrangement,
    wanted: Iterable[int],
    options: m.TaskOptions,
    *,
    own_options: Mapping[int, m.TaskOptions] | None = None,
    again: bool = False,
    serialization: Serialization | None = None,
    function: Callable[..., Any] | None = None,
) -> Packed:
    """Pickle a graph; raises PayloadError, which names the key at fault, StorageFullError.

    Nodes have the same ``options``, but for those that have their own. With a ``function`` that is
    what its one node calls; else functions are in a table. The caller closes what it returns once
    that was asked for.
    """
    packed = Packed(pickler, options, again=again)
    steps, order, futures = arrangement.steps, arrangement.order, arrangement.futures
    every = [steps[number][5] for number in order]
    # Each is wanted, or needed by so many.
    uses = Counter(chain.from_iterable(every))
    ends = set(wanted)
    uses.update(ends)
    if futures:
        inputs = (futures[one] for one in chain.from_iterable(every) if one in futures)
        packed.inputs = list(dict.fromkeys(inputs))
    packer = _Packer(packed, arrangement, uses, serialization, function)
    own = own_options or {}
    try:
        branch: list[int] = []
        last = -1
        for number in order:
            if branch and (
                uses[last] != 1
                or not _continues(last, steps[number], steps)
                or (own and own.get(number) != own.get(last))
            ):
                packer.put(branch)
                branch = []
            last = number
            branch.append(number)
        if branch:
            packer.put(branch)
        packer.finish(ends)
        if own:
            packer.add_options(own)
    except BaseException:
        packed.close()
        raise
    return packed


def _continues(last: int, step: Step, steps: list[Any]) -> bool:
    """Return True if a call takes what the one before it made, and nothing else that is made."""
    below = step[5]
    if last not in below or step[4]:
        return False
    return len(below) == 1 or all(one == last or steps[one] is None for one in below)


class _Sink:
    """What a pickler writes to: a list of the pieces."""

    __slots__ = ("write",)

    def __init__(self, pieces: list[bytes]) -> None:
        self.write = pieces.append


class _Packer:
    """Pickles the nodes of a graph, one after the other."""

    def __init__(
        self,
        packed: Packed,
        arrangement: Arrangement,
        uses: Counter[int],
        serialization: Serialization | None,
        function: Callable[..., Any] | None,
    ) -> None:
        self._packed = packed
        self._steps = arrangement.steps
        self._keys = arrangement.keys
        self._values = arrangement.values
        self._serialization = serialization
        self._single = function
        self._used = uses
        self._names = LayerNames(arrangement, len(packed.inputs))
        self._nodes = packed.nodes
        self._dependencies: list[int] = []
        self._ends: list[int] = []
        self._uses: list[int] = []
        self._functions: dict[int, int] = {}
        """Index of each function in the table, by its identity."""
        self._callables: list[Callable[..., Any]] = []
        self._callers: list[int] = []
        """The call that used each first."""
        # The inputs are the first nodes.
        self._nodes += [_NO_NODE] * len(self._keys)
        place = {future: index for index, future in enumerate(packed.inputs)}
        for number, future in arrangement.futures.items():
            self._nodes[number] = place.get(future, _NO_NODE)
        packed.payloads += [b""] * len(place)
        self._ends += [0] * len(place)
        self._uses += [0] * len(place)
        # A pickler is made once: that would take longer than most nodes do.
        keep = payloads.keep_small if packed.pickler.stores else None
        pickler = pickle.Pickler(_Sink(packed.payloads), PROTOCOL, buffer_callback=keep)
        self._dump, self._forget = pickler.dump, pickler.clear_memo

    def put(self, branch: list[int]) -> None:
        """Pickle the calls of a chain as one node."""
        nodes, done = self._nodes, self._packed.payloads
        count = len(done)
        links: FusedStep | list[FusedStep]
        if len(branch) == 1:
            number = branch[0]
            step = self._steps[number]
            links = self._link(number, step)
            below: Sequence[int] = links[2][1::2]
            if step[4] or not 2 * len(step[5]) == len(step[2]) == len(links[2]):
                # Not each once, or there is more.
                below = [node for one in step[5] if (node := nodes[one]) >= 0]
        else:
            links = []
            known: dict[int, None] = {}
            for number in branch:
                step = self._steps[number]
                links.append(self._link(number, step))
                known.update(dict.fromkeys(node for one in step[5] if (node := nodes[one]) >= 0))
                nodes[number] = PREVIOUS
            below = list(known)
        nodes[number] = count
        if self._single is None:
            self._names.add(number)
        try:
            self._forget()
            self._dump(links)
            # What is large comes in several pieces.
            is_plain = len(done) == count + 1 and payloads.is_plain(done[count])
        except INTERRUPTS:
            raise
        except BaseException:
            # The longer way says what is wrong, if anything is.
            is_plain = False
        if not is_plain:
            del done[count:]
            done.append(self._pack_slowly(branch, links))
        self._dependencies += below
        self._ends.append(len(self._dependencies))
        self._uses.append(self._used[number])

    def _link(self, number: int, step: Step) -> FusedStep:
        """Return a call as it is pickled."""
        function, args, holes, kwargs, nested, _ = step
        nodes = self._nodes
        if self._serialization is not None:
            self._serialize(number, step)
        has_data = False
        for place in range(1, len(holes), 2):
            one = holes[place]
            node = holes[place] = nodes[one]
            if node == _NO_NODE:
                has_data = True
                args[holes[place - 1]] = self._value(one)
        if has_data:
            pairs = zip(holes[::2], holes[1::2], strict=True)
            holes = [one for pair in pairs if pair[1] != _NO_NODE for one in pair]
        for deep in nested:
            deep.node = nodes[deep.number]
            if deep.node < 0:
                deep.value = self._values[deep.number]
        known = self._functions.get(id(function))
        if known is None and self._single is None:
            known = self._add_function(number, function)
        return known, args, tuple(holes), kwargs

    def _serialize(self, number: int, step: Step) -> None:
        """Let the user's serializer make bytes of the arguments that are whole values."""
        _, args, holes, _, nested, _ = step
        assert self._serialization is not None
        with self._naming(number):
            for index, arg in enumerate(args):
                if index not in holes[::2] and not (nested and type(arg) in (list, tuple, dict)):
                    args[index] = self._serialization.value(arg)

    def finish(self, ends: set[int]) -> None:
        """Pickle the functions, and note what is wanted."""
        packed = self._packed
        inputs = len(packed.inputs)
        if inputs:
            for node in self._dependencies:
                if node < inputs:
                    self._uses[node] += 1
        packed.dependencies = array("I", self._dependencies)
        packed.ends, packed.uses = array("I", self._ends), array("I", self._uses)
        packed.wanted = bytearray(len(packed.payloads))
        for number in ends:
            node = self._nodes[number]
            if node >= len(packed.inputs):
                packed.wanted[node] = 1
        packed.names, packed.layers = self._names.names, self._names.numbers
        if self._single is not None:
            packed.function = packed.pickler.function(self._single, packed.held)
            packed.table = self._single
            return
        try:
            table = FunctionTable(self._callables)
            packed.function = packed.pickler.function(table, packed.held)  # type: ignore[arg-type]
            packed.table = table
        except PayloadError:
            for number, function in zip(self._callers, self._callables, strict=True):
                with self._naming(number):
                    payloads.dumps(function, payloads.Collector())
            raise

    def add_options(self, own: Mapping[int, m.TaskOptions]) -> None:
        """Note the options of nodes that have their own."""
        packed = self._packed
        packed.kinds = array("I", bytes(4 * len(packed.payloads)))
        known = {one: kind for kind, one in enumerate(packed.options)}
        for number, options in own.items():
            node = self._nodes[number]
            if node >= len(packed.inputs):
                packed.kinds[node] = known.setdefault(options, len(known))
        packed.options = dict.fromkeys(known)

    def _value(self, number: int) -> Any:
        value = self._values[number]
        if self._serialization is None:
            return value
        with self._naming(number):
            return self._serialization.value(value)

    def _add_function(self, number: int, function: Callable[..., Any]) -> int:
        known = self._functions[id(function)] = len(self._callables)
        if self._serialization is not None:
            with self._naming(number):
                function = self._serialization.function(function)
        self._callables.append(function)
        self._callers.append(number)
        return known

    def _pack_slowly(self, branch: list[int], value: FusedStep | list[FusedStep]) -> bytes:
        """Pickle what is large, or what C pickle cannot do."""
        packed = self._packed
        links = value if isinstance(value, list) else [value]
        try:
            if not packed.pickler.stores:
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
            with self._naming(branch[-1]):
                raise
        packed.objects += ids
        packed.owners.extend([len(packed.payloads)] * len(ids))
        return payload

    def _blame(self, branch: list[int]) -> None:
        """Raise PayloadError that names what cannot be pickled, if it is known: data, or a node."""
        for number in branch:
            function, args, _, kwargs, _, below = self._steps[number]
            for one in below:
                value = self._values.get(one)
                if type(value) is not payloads.ObjectReference:
                    with self._naming(one):
                        payloads.dumps(value, payloads.Collector())
            with self._naming(number):
                payloads.check_call(function, args, kwargs or {})

    @contextlib.contextmanager
    def _naming(self, number: int) -> Iterator[None]:
        """Add a key to the text of an error; a single call has none."""
        try:
            yield
        except PayloadError as error:
            if self._single is not None:
                raise
            key = self._keys[number]
            raise PayloadError(f"node {key!r}: {error}") from error.__cause__
