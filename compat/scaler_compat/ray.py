"""Ray's functions over this engine: ``@ray.remote``, ``ray.get`` and their likes.

References are futures, see :mod:`scaler_compat.ray_references`. Actors are those of the engine.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import importlib.util
import itertools
import math
import sys
from concurrent.futures import CancelledError, Future
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from scaler_cluster.client import actors
from scaler_cluster.errors import ActorDiedError, RemoteError, ScalerError, WorkerDiedError
from scaler_cluster.pickling.constant import Constant
from scaler_cluster.pickling.payload import function_name
from scaler_compat.ray_connection import connected, init, is_initialized, scaler_init, shutdown
from scaler_compat.ray_references import (
    ObjectRef,
    Stored,
    call_with_values,
    given,
    inside,
    value_of,
    with_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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


ACTORS_REFUSED = MappingProxyType(
    {
        "lifetime": "an actor ends with the client that had it made",
        "max_concurrency": "an actor runs one call at a time",
        "max_restarts": "an actor that is lost is not made again",
        "name": "an actor is known by its handle",
        "runtime_env": REFUSED["runtime_env"],
    }
)


METHODS_REFUSED = MappingProxyType(
    {
        "concurrency_group": "an actor runs one call at a time",
        "retry_exceptions": REFUSED["retry_exceptions"],
    }
)
METHODS_WITHOUT_EFFECT = frozenset(("enable_task_events", "max_task_retries"))


class GetTimeoutError(TimeoutError):
    """The values were not there in time."""


# -- values ------------------------------------------------------------------------------------


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
    return ObjectRef(Stored(connected(), value))


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
        passed = tuple(map(given, args))
        named = {name: given(value, is_positional=False) for name, value in kwargs.items()}
        inside.was_met = False
        future = self._submit(client, self._task, passed, named)
        if inside.was_met:
            # Inside of values: nothing was sent.
            packed = self._task, *with_values(args, kwargs)
            future = self._submit(client, call_with_values, packed, {})
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


def _known(options: dict[str, Any], refused: Mapping[str, str] = REFUSED) -> dict[str, Any]:
    """Return the options that mean something here; raise for those that nobody follows."""
    for name, why in refused.items():
        if options.get(name):
            raise NotImplementedError(f"{name} is not there: {why}")
    count = options.get("num_returns", 1)
    if isinstance(count, str):
        raise NotImplementedError(f"num_returns={count!r} is not there: a task returns once")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"num_returns must be a whole number of 1 or more, not {count!r}")
    known = {name: value for name, value in options.items() if name not in WITHOUT_EFFECT}
    wrong = known.keys() - {"num_returns", "num_cpus", "num_gpus", "resources", *refused}
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
    """A class of actors: ``C.remote(...)`` has one made in a worker of its own."""

    def __init__(self, cls: type, options: dict[str, Any]) -> None:
        self._class = cls
        self._options = options
        self._capabilities = _actors_demand(options)
        self.__name__, self.__doc__ = cls.__name__, cls.__doc__

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: actors are made elsewhere."""
        raise TypeError(f"call {self.__name__}.remote(...) in place of {self.__name__}(...)")

    def options(self, **named: Any) -> RemoteClass:
        """Return the same class with other options."""
        return RemoteClass(self._class, self._options | _known(named, ACTORS_REFUSED))

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        """Have an actor made, and return its handle; references in the arguments are waited for."""
        client = connected()
        if self._capabilities:
            client = client.options(capabilities=self._capabilities)
        named = {name: value_of(value) for name, value in kwargs.items()}
        return ActorHandle(actors.create(client, self._class, *map(value_of, args), **named))


class ActorHandle:
    """Calls an actor: ``handle.method.remote(...)`` returns a reference. It may be pickled."""

    def __init__(self, handle: actors.ActorHandle) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> ActorMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        return ActorMethod(getattr(self._handle, name))

    def __repr__(self) -> str:
        return repr(self._handle)

    def __reduce__(self) -> Any:
        return ActorHandle, (self._handle,)


class ActorMethod:
    """A method of an actor."""

    def __init__(self, call: Callable[..., Future[Any]]) -> None:
        self._call = call

    def remote(self, *args: Any, **kwargs: Any) -> ObjectRef[Any]:
        """Submit a call; references among the arguments are waited for."""
        named = {name: value_of(value) for name, value in kwargs.items()}
        return ObjectRef(self._call(*map(value_of, args), **named))


def kill(actor: ActorHandle, *, no_restart: bool = True) -> None:
    """End an actor now, whatever it runs; raises TypeError."""
    if not isinstance(actor, ActorHandle):
        raise TypeError(f"kill() needs the handle of an actor, not {type(actor).__qualname__}")
    actors.destroy(actor._handle, force=True)


def method(**named: Any) -> Callable[[T], T]:
    """Return a decorator of an actor's method, which changes nothing.

    Raises NotImplementedError for several values, ValueError for what is no option of a method.
    """
    for name in sorted(METHODS_REFUSED.keys() & named.keys()):
        raise NotImplementedError(f"{name} is not there: {METHODS_REFUSED[name]}")
    count = named.pop("num_returns", 1)
    if count != 1:
        raise NotImplementedError(f"num_returns={count!r} is not there: a call has one value")
    wrong = named.keys() - METHODS_WITHOUT_EFFECT
    if wrong:
        raise ValueError(f"{min(wrong)!r} is no option of a method")
    return lambda function: function


def _actors_demand(options: dict[str, Any]) -> dict[str, float]:
    needed, cores = _demand(options)
    if cores > 1 or options.get("num_returns", 1) > 1:
        raise NotImplementedError("an actor has one core, and a call of it one value")
    return needed


@overload
def remote(function: Callable[..., Any], /) -> RemoteFunction: ...
@overload
def remote(**named: Any) -> Callable[[Callable[..., Any]], RemoteFunction]: ...
def remote(*given: Any, **named: Any) -> Any:
    """Make a function remote: ``@ray.remote``, or ``@ray.remote(num_returns=2, num_gpus=1)``.

    ``num_cpus`` are the cores that a task needs, ``num_gpus`` and ``resources`` what it demands of
    its worker. A class becomes one of actors. Raises TypeError, ValueError, NotImplementedError for
    other options.
    """
    # Those of classes alone are looked at when there is one.
    _known({name: value for name, value in named.items() if name not in ACTORS_REFUSED})

    def make(function: Any) -> Any:
        if isinstance(function, type):
            return RemoteClass(function, _known(named, ACTORS_REFUSED))
        if not callable(function):
            raise TypeError(f"only functions can be remote, not {type(function).__qualname__}")
        return RemoteFunction(function, _known(named))

    if not given:
        return make
    if len(given) > 1 or named:
        raise TypeError("write @ray.remote, or @ray.remote(name=value)")
    return make(given[0])


# -- in the place of Ray ---------------------------------------------------------------------------


def _missing(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"ray.{name} is not there: this layer has tasks and actors")

    return refuse


available_resources = _missing("available_resources")
cluster_resources = _missing("cluster_resources")
get_actor = _missing("get_actor")
get_gpu_ids = _missing("get_gpu_ids")
get_runtime_context = _missing("get_runtime_context")
nodes = _missing("nodes")
timeline = _missing("timeline")


def _module(name: str, **contents: Any) -> ModuleType:
    module = ModuleType(f"ray.{name}", "A part of Ray, over this engine.")
    module.__dict__.update(contents)
    return module


util = _module("util", as_completed=as_completed, map_unordered=map_unordered)
exceptions = _module(
    "exceptions",
    ActorDiedError=ActorDiedError,
    GetTimeoutError=GetTimeoutError,
    RayActorError=ActorDiedError,
    RayError=ScalerError,
    RayTaskError=RemoteError,
    TaskCancelledError=CancelledError,
    WorkerCrashedError=WorkerDiedError,
)
NAMES = [name for name in __all__ if name not in ("exceptions", "scaler_init", "util")]
"""What of Ray is replaced."""


def _is_installed() -> bool:
    """Return True if Ray is there: a folder of this name, as of somebody's notes, is not Ray."""
    found = importlib.util.find_spec("ray")
    return found is not None and found.origin is not None


def _install() -> None:
    """Let ``import ray`` be this layer: by an installed Ray's names, or as the module itself."""
    here = sys.modules[__name__]
    if not _is_installed():
        if "ray" in sys.modules:
            # It was imported before: a folder. Who has it by that name gets Ray's functions.
            vars(sys.modules["ray"]).update({name: getattr(here, name) for name in __all__})
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
