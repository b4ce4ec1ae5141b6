"""Ray's functions over this engine: ``@ray.remote``, ``ray.get`` and their likes.

References are futures. One that is an argument is resolved on the cluster. One that is inside of
other values is a reference for the task as well, whose value travels with the arguments.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import importlib.util
import itertools
import math
import pickle
import sys
import threading
from concurrent.futures import CancelledError, Future
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

from scaler_cluster.errors import FutureInsideError, RemoteError, ScalerError, WorkerDiedError
from scaler_cluster.pickling.payload import Constant, dumps, function_name
from scaler_compat.ray_connection import connected, init, is_initialized, scaler_init, shutdown

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from scaler_cluster.client.client import Client

__all__ = [
    "ObjectRef",
    "available_resources",
    "cancel",
    "cluster_resources",
    "exceptions",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "scaler_init",
    "shutdown",
    "timeline",
    "util",
    "wait",
]
T = TypeVar("T")

WITHOUT_EFFECT = frozenset(
    ("accelerator_type", "enable_task_events", "max_calls", "max_retries", "memory", "name",
     "object_store_memory", "scheduling_strategy")
)  # fmt: skip
"""Options of Ray that say how it schedules, and change no result."""
REFUSED = MappingProxyType(
    {
        "retry_exceptions": "a task that raises is not run again",
        "runtime_env": "tasks run in the environment of their workers",
    }
)


class GetTimeoutError(TimeoutError):
    """The values were not there in time."""


# -- references --------------------------------------------------------------------------------


class _Inside(threading.local):
    """The references inside of values that this thread pickles or unpickles."""

    was_met = False
    """One was met where none can be pickled."""
    found: list[ObjectRef[Any]] | None = None
    """While arguments are pickled in which there are some."""
    values: tuple[Any, ...] = ()
    """While such arguments are unpickled."""


_inside = _Inside()


class ObjectRef(Generic[T]):
    """Stands for a value that a task returns, or that was stored by :func:`put`."""

    def __init__(self, source: Callable[[], Future[T]] | Future[T], task: Any = None) -> None:
        self._source = source
        """Its future, or what makes that when it is first needed."""
        self._task = task

    def future(self) -> Future[T]:
        """Return its future."""
        if not isinstance(self._source, Future):
            self._source = self._source()
        return self._source

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the value in asyncio."""
        import asyncio

        return asyncio.wrap_future(self.future()).__await__()

    def __reduce__(self) -> Any:
        """Let what calls a remote function send the value along; refuse everywhere else."""
        if _inside.found is None:
            _inside.was_met = True
            raise FutureInsideError(
                "a reference can be an argument of a remote function, also inside of other values, "
                "but a task cannot return it, and no function or file keeps it: pass its value"
            )
        _inside.found.append(self)
        return _arrived, (len(_inside.found) - 1,)

    def as_argument(self, *, is_positional: bool = True) -> Any:
        """Return what a task is given in its place."""
        if is_positional and isinstance(self._source, _Stored):
            return self._source.reference
        future = self.future()
        # One that came with arguments has its value.
        return future.result() if type(future) is Future else future

    def cancel(self) -> None:
        """Cancel the task, unless it has ended."""
        self.future().cancel()
        if self._task is not None:
            self._task.cancel()


class _Stored:
    """A value that is stored on the cluster; a call fetches it."""

    def __init__(self, client: Client, value: Any) -> None:
        self._client = client
        self.reference = client.send_object(value)

    def __call__(self) -> Future[Any]:
        return self._client.submit(_same, self.reference)


def _arrived(index: int) -> ObjectRef[Any]:
    future: Future[Any] = Future()
    future.set_result(_inside.values[index])
    return ObjectRef(future)


def _call(function: Callable[..., T], pickled: bytes, *values: Any) -> T:
    """Call a function, in a task, with arguments in which there are references."""
    _inside.values = values
    try:
        args, kwargs = pickle.loads(pickled)
    finally:
        _inside.values = ()
    args = tuple(map(_value_of, args))
    return function(*args, **{name: _value_of(value) for name, value in kwargs.items()})


def _value_of(argument: Any) -> Any:
    return argument.future().result() if isinstance(argument, ObjectRef) else argument


def _same(value: T) -> T:
    return value


def _item(value: Any, index: int, count: int) -> Any:
    if not hasattr(value, "__getitem__") or not hasattr(value, "__len__"):
        raise TypeError(f"num_returns={count} needs a sequence, not {type(value).__qualname__}")
    if len(value) != count:
        raise ValueError(f"the task has returned {len(value)} values, and num_returns={count}")
    return value[index]


def put(value: T) -> ObjectRef[T]:
    """Store a value on the cluster; raises PayloadError, StorageFullError."""
    if isinstance(value, ObjectRef):
        raise TypeError("this is a reference already")
    return ObjectRef(_Stored(connected(), value))


def get(refs: Any, *, timeout: float | None = None) -> Any:
    """Return the value of a reference, or a list of those of several, in their order.

    Raises the exception of the task, with the worker's traceback; GetTimeoutError; TypeError.
    """
    if isinstance(refs, ObjectRef):
        return get([refs], timeout=timeout)[0]
    futures = [one.future() for one in _checked(refs)]
    if timeout is not None and concurrent.futures.wait(futures, timeout).not_done:
        raise GetTimeoutError(f"not all of {len(futures)} values were there after {timeout:g} s")
    return [one.result() for one in futures]


def wait(
    refs: Sequence[ObjectRef[T]],
    *,
    num_returns: int | None = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[ObjectRef[T]], list[ObjectRef[T]]]:
    """Return ``num_returns`` references that are done, and the others; both in their order.

    After ``timeout`` seconds they may be fewer. None waits for all. Raises TypeError, ValueError.
    """
    all_refs = _checked(refs)
    if len(set(all_refs)) < len(all_refs):
        raise ValueError("each reference may be given once")
    wanted = len(all_refs) if num_returns is None else num_returns
    if wanted > len(all_refs):
        raise ValueError(f"num_returns is {wanted}, and there are {len(all_refs)} references")
    if wanted > 0:
        arrived = concurrent.futures.as_completed([one.future() for one in all_refs], timeout)
        with contextlib.suppress(concurrent.futures.TimeoutError):
            for _ in itertools.islice(arrived, wanted):
                pass
    ready = [one for one in all_refs if one.future().done()][: max(wanted, 0)]
    kept = set(ready)
    return ready, [one for one in all_refs if one not in kept]


def _checked(refs: Any) -> list[ObjectRef[Any]]:
    if isinstance(refs, (list, tuple)) and all(isinstance(one, ObjectRef) for one in refs):
        return list(refs)
    raise TypeError(f"references are needed, or a list of them, not {type(refs).__qualname__}")


def cancel(ref: ObjectRef[Any], *, force: bool = False, recursive: bool = True) -> None:
    """Cancel a task, running or not, with the tasks that it has submitted."""
    ref.cancel()


def as_completed(
    refs: Sequence[ObjectRef[T]], *, yield_obj_refs: bool = False, **_: Any
) -> Iterator[Any]:
    """Yield the values as they come, or their references."""
    by_future = {one.future(): one for one in _checked(refs)}
    for future in concurrent.futures.as_completed(by_future):
        yield by_future[future] if yield_obj_refs else future.result()


def map_unordered(
    fn: RemoteFunction, items: Sequence[Any], *, yield_obj_refs: bool = False, **_: Any
) -> Iterator[Any]:
    """Call a remote function with each item, and yield the values as they come."""
    if getattr(fn, "num_returns", None) != 1:
        raise TypeError("map_unordered() needs a remote function with one value")
    return as_completed([fn.remote(item) for item in items], yield_obj_refs=yield_obj_refs)


# -- remote functions ----------------------------------------------------------------------------


class _Task(Constant):
    """Calls a remote function. Who unpickles it has imported this module before the function."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @property
    def label(self) -> str:
        return function_name(self._function)

    def __reduce__(self) -> Any:
        return _Task, (self._function,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


class RemoteFunction:
    """A function whose calls are tasks: ``f.remote(...)`` returns a reference."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function = function
        self._task = _Task(function)
        self._options = options
        self.num_returns: int = options.get("num_returns", 1)
        self._capabilities, self._cores = _demand(options)
        functools.update_wrapper(self, function)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: only its tasks call the function."""
        name = self._function.__name__
        raise TypeError(f"call {name}.remote(...) in place of {name}(...): it runs as a task")

    def options(self, **named: Any) -> RemoteFunction:
        """Return the same function with other options."""
        return RemoteFunction(self._function, self._options | _known(named))

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Submit a call; return its reference, or a list of them with ``num_returns``.

        References among the arguments are resolved on the cluster. Raises PayloadError when the
        value is asked for, if an argument cannot be pickled.
        """
        client = connected()
        given = tuple(_given(value) for value in args)
        named = {name: _given(value, is_positional=False) for name, value in kwargs.items()}
        _inside.was_met = False
        future = self._submit(client, self._task, given, named)
        if _inside.was_met:
            # Inside of values: nothing was sent.
            future = self._submit(client, _call, (self._task, *_with_values(args, kwargs)), {})
        if self.num_returns == 1:
            return ObjectRef(future)
        count = self.num_returns
        return [
            ObjectRef(client.submit(_item, future, index, count), task=future)
            for index in range(count)
        ]

    def _submit(
        self, client: Client, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
    ) -> Future[Any]:
        return client.submit_verbose(
            function, args, kwargs, capabilities=self._capabilities, cores=self._cores
        )


def _with_values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the pickle of arguments, and what stands for the references in it."""
    found: list[ObjectRef[Any]] = []
    _inside.found = found
    try:
        pickled = dumps((args, kwargs))
    finally:
        _inside.found = None
    return [pickled, *(one.as_argument() for one in found)]


def _given(value: Any, *, is_positional: bool = True) -> Any:
    if isinstance(value, ObjectRef):
        return value.as_argument(is_positional=is_positional)
    return value


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that mean something here; raise for those that nobody follows."""
    for name, why in REFUSED.items():
        if options.get(name):
            raise NotImplementedError(f"{name} is not there: {why}")
    count = options.get("num_returns", 1)
    if isinstance(count, str):
        raise NotImplementedError(f"num_returns={count!r} is not there: a task returns once")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"num_returns must be a whole number of 1 or more, not {count!r}")
    known = {name: value for name, value in options.items() if name not in WITHOUT_EFFECT}
    wrong = known.keys() - {"num_returns", "num_cpus", "num_gpus", "resources", *REFUSED}
    if wrong:
        raise ValueError(f"{min(wrong)!r} is no option of a remote function")
    return known


def _demand(options: dict[str, Any]) -> tuple[dict[str, float], int]:
    """Return the capabilities and the cores that a task with these options needs."""
    needed = dict(options.get("resources") or {})
    if options.get("num_gpus"):
        needed["gpu"] = options["num_gpus"]
    # A worker has one core, also for a task that would do with a part of it.
    return needed, max(math.ceil(options.get("num_cpus") or 1), 1)


class RemoteClass:
    """A class of actors, which cannot be made."""

    def __init__(self, cls: type) -> None:
        self._class = cls
        self.__name__, self.__doc__ = cls.__name__, cls.__doc__

    def options(self, **_: Any) -> RemoteClass:
        """Return this."""
        return self

    def remote(self, *_: Any, **__: Any) -> NoReturn:
        """Raise NotImplementedError."""
        raise NotImplementedError(
            f"{self._class.__name__}.remote(...): this layer has no actors, only remote functions"
        )


@overload
def remote(function: Callable[..., Any], /) -> RemoteFunction: ...
@overload
def remote(**named: Any) -> Callable[[Callable[..., Any]], RemoteFunction]: ...
def remote(*given: Any, **named: Any) -> Any:
    """Make a function remote: ``@ray.remote``, or ``@ray.remote(num_returns=2, num_gpus=1)``.

    ``num_cpus`` are the cores that a task needs, ``num_gpus`` and ``resources`` what it demands of
    its worker. Raises TypeError, ValueError, NotImplementedError for other options.
    """
    options = _known(named)

    def make(function: Any) -> Any:
        if isinstance(function, type):
            return RemoteClass(function)
        if not callable(function):
            raise TypeError(f"only functions can be remote, not {type(function).__qualname__}")
        return RemoteFunction(function, options)

    if not given:
        return make
    if len(given) > 1 or named:
        raise TypeError("write @ray.remote, or @ray.remote(name=value)")
    return make(given[0])


# -- in the place of Ray ---------------------------------------------------------------------------


def _missing(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"ray.{name} is not there: this layer has tasks and references")

    return refuse


available_resources = _missing("available_resources")
cluster_resources = _missing("cluster_resources")
get_actor = _missing("get_actor")
get_gpu_ids = _missing("get_gpu_ids")
get_runtime_context = _missing("get_runtime_context")
kill = _missing("kill")
method = _missing("method")
nodes = _missing("nodes")
timeline = _missing("timeline")


def _module(name: str, **contents: Any) -> ModuleType:
    module = ModuleType(f"ray.{name}", "A part of Ray, over this engine.")
    module.__dict__.update(contents)
    return module


util = _module("util", as_completed=as_completed, map_unordered=map_unordered)
exceptions = _module(
    "exceptions",
    GetTimeoutError=GetTimeoutError,
    RayError=ScalerError,
    RayTaskError=RemoteError,
    TaskCancelledError=CancelledError,
    WorkerCrashedError=WorkerDiedError,
)
NAMES = [name for name in __all__ if name not in ("exceptions", "scaler_init", "util")]
"""What of Ray is replaced."""


def _install() -> None:
    """Let ``import ray`` be this layer: by an installed Ray's names, or as the module itself."""
    here = sys.modules[__name__]
    if "ray" not in sys.modules and importlib.util.find_spec("ray") is None:
        sys.modules.update({"ray": here, "ray.util": util, "ray.exceptions": exceptions})
        return
    theirs = importlib.import_module("ray")
    for name in NAMES:
        setattr(theirs, name, getattr(here, name))
    importlib.import_module("ray.util").__dict__.update(
        as_completed=as_completed, map_unordered=map_unordered
    )
    importlib.import_module("ray.exceptions").__dict__.update(
        {name: value for name, value in vars(exceptions).items() if not name.startswith("_")}
    )


# In each process that unpickles a task as well: there, its function may import Ray.
_install()
