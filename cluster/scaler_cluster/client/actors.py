"""Actors: objects that live in a worker of their own, and handles that call their methods.

What is here is used on both sides: handles in any process of the cluster, and, in the worker of an
actor, the functions that make it, call it and end it.
"""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster import arguments
from scaler_cluster.client import worker_context
from scaler_cluster.client.connected import ConnectedClient
from scaler_cluster.client.session import open_sessions
from scaler_cluster.errors import ActorDiedError, ConfigError
from scaler_cluster.pickling.constant import Constant
from scaler_cluster.texts import show
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.session import Session

    Methods = frozenset[str]

LABEL_CHARS_MAX = 100

_here: dict[str, object] = {}
"""In the worker of an actor: the object, by the actor's id."""
_unmade: dict[str, BaseException] = {}
"""There, if its class raised: what."""


# -- in the actor's worker ---------------------------------------------------------------------


class _Making(Constant):
    """Makes an actor."""

    __slots__ = ("_actor", "_cls")

    def __init__(self, actor: str, cls: Callable[..., object]) -> None:
        self._actor = actor
        self._cls = cls

    @property
    def label(self) -> str:
        return _label_of(self._actor)

    def __reduce__(self) -> Any:
        return _Making, (self._actor, self._cls)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if worker_context.keep_code is None:
            raise ConfigError(
                "an actor cannot live here: what runs the tasks of this worker keeps nothing"
            )
        worker_context.keep_code()
        try:
            _here[self._actor] = self._cls(*args, **kwargs)
        except BaseException as error:
            _unmade[self._actor] = error
            raise


class _Call(Constant):
    """Calls a method of an actor, or returns an attribute; without a name it does nothing."""

    __slots__ = ("_actor", "_is_method", "_name")

    def __init__(self, actor: str, name: str, *, is_method: bool = True) -> None:
        self._actor = actor
        self._name = name
        self._is_method = is_method

    @property
    def label(self) -> str:
        return f"{_label_of(self._actor)}.{self._name or 'ready'}"

    def __reduce__(self) -> Any:
        return _call, (self._actor, self._name, self._is_method)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        actor = self._actor
        if actor not in _here:
            error = _unmade.get(actor)
            how = f"it could not be made: {show(error)}" if error else "it was destroyed"
            text = f"the actor {_label_of(actor)} is gone: {how}"
            raise ActorDiedError(text, actor=actor) from error
        if not self._name:
            return None
        found = getattr(_here[actor], self._name)
        return found(*args, **kwargs) if self._is_method else found


def _call(actor: str, name: str, is_method: bool) -> _Call:
    return _Call(actor, name, is_method=is_method)


class _Ending(_Call):
    """Ends an actor, with its worker."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        return _Ending, (self._actor, "")

    def __call__(self) -> None:
        super().__call__()
        del _here[self._actor]
        if worker_context.leave is not None:
            worker_context.leave()


def _label_of(actor: str) -> str:
    return actor[len(m.ACTOR) :].rpartition(":")[0]


# -- handles -----------------------------------------------------------------------------------


class ActorHandle:
    """Calls an actor: ``handle.method(...)`` returns the future of the call.

    All that the handle has of its own is in functions beside this class, so that no method of an
    actor is hidden. A handle may be pickled: into tasks, into other actors, and to other clients of
    the same cluster.
    """

    def __init__(
        self,
        actor: str,
        methods: Methods,
        cluster: tuple[str, str],
        session: Session | None = None,
        options: m.TaskOptions = m.DEFAULT_OPTIONS,
    ) -> None:
        self._actor = actor
        self._methods = methods
        self._cluster = cluster
        """Its address, and the directory of its objects: by either it is known."""
        self._session = session
        self._options = replace(options, workers=(actor,), at_most_once=True)
        self._calls: dict[tuple[str, bool], _Call] = {}
        """Each is pickled once."""

    def __getattr__(self, name: str) -> ActorMethod:
        if name.startswith("_") or name not in self._methods:
            raise AttributeError(
                f"{_label_of(self._actor)} has no method {name!r} that a handle calls: for other "
                "methods and attributes there are actors.call and actors.value"
            )
        return ActorMethod(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._methods})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and other._actor == self._actor

    def __hash__(self) -> int:
        return hash(self._actor)

    def __repr__(self) -> str:
        return f"<actor {_label_of(self._actor)} {self._actor[-32:][:8]}>"

    def __reduce__(self) -> Any:
        return ActorHandle, (self._actor, self._methods, self._cluster)


class ActorMethod:
    """A method of an actor: a call of it is submitted, and returns its future."""

    def __init__(self, handle: ActorHandle, name: str) -> None:
        self._handle = handle
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> ScalerFuture[Any]:
        """Submit a call; see :func:`call`."""
        return _submit(self._handle, self._name, args, kwargs)

    def __repr__(self) -> str:
        return f"<{self._name} of {self._handle!r}>"


class Executor(Protocol):
    """What an actor is made through, if that is no Client: a ScalerExecutor."""

    _session: Session
    _options: m.TaskOptions


def create(
    client: ConnectedClient | Executor,
    cls: Callable[..., object],
    /,
    *args: Any,
    **kwargs: Any,
) -> ActorHandle:
    """Make ``cls(*args, **kwargs)`` in a worker of its own, and return a handle of it at once.

    The worker runs the calls of the actor one at a time, in the order in which each client has
    submitted them, and nothing else; another worker takes its place. The actor lives until it is
    destroyed, the client is gone that made it, or its worker dies. If a task makes one, the client
    is that of the program that submitted the task, and this returns when the actor is there.

    Args:
        client: A Client or ScalerExecutor. Of its options, ``capabilities`` count: what the worker
            must have. The actor has it for as long as it lives.
        cls: The class, or any function that returns the object.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Raises:
        TypeError: ``cls`` cannot be called, or an argument is a future.
        ConfigError: The client has other options, such as retries.

    """
    handle, _ = make(client, cls, args, kwargs)
    if worker_context.is_worker():
        # What a task has submitted ends with it.
        ready(handle).result()
    return handle


def make(
    client: ConnectedClient | Executor,
    cls: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[ActorHandle, ScalerFuture[Any]]:
    """Make an actor as :func:`create` does, but do not wait for it in a task either.

    The future is done when the actor is there, and raises what ``cls`` raised.
    """
    arguments.function(cls, "create")
    if not isinstance(client, ConnectedClient):
        options = client._options
    elif client._serialization is None:
        options = client._asked.unmeasured
    else:
        raise ConfigError("a client with a serializer of its own makes no actors: use another one")
    session = client._session
    told = m.TaskOptions(stream_output=options.stream_output, log_level=options.log_level)
    making = replace(told, capabilities=options.capabilities, at_most_once=True)
    if replace(options, at_most_once=True) != making:
        raise ConfigError(
            "of all options an actor takes capabilities alone: it is made once, in its turn, "
            "without a timeout, in one worker"
        )
    _check_arguments(args, kwargs)
    name = getattr(cls, "__qualname__", type(cls).__qualname__)[-LABEL_CHARS_MAX:]
    actor = f"{m.ACTOR}{name}:{uuid.uuid4().hex}"
    public = [one for one in dir(cls) if not one.startswith("_")]
    methods = frozenset(one for one in public if callable(getattr(cls, one, None)))
    cluster = session.address, session.connection.welcome.homes[0].disk
    handle = ActorHandle(actor, methods, cluster, session, told)
    made = session.submit(_Making(actor, cls), args, kwargs, replace(making, creates=actor))
    return handle, made


def call(handle: ActorHandle, method: str, /, *args: Any, **kwargs: Any) -> ScalerFuture[Any]:
    """Submit a call of a method of any name, and return its future.

    ``cancel`` of the future keeps a call from being run that has not started; one that runs is left
    alone. The future raises what the method raises, or ActorDiedError if the actor is gone.

    Raises:
        ConfigError: An actor called itself, or there is no client of its cluster here.
        TypeError: An argument is a future.

    """
    return _submit(handle, method, args, kwargs)


def value(handle: ActorHandle, attribute: str) -> ScalerFuture[Any]:
    """Return the future of the value that an attribute has when it is this call's turn."""
    return _submit(handle, attribute, (), {}, is_method=False)


def ready(handle: ActorHandle) -> ScalerFuture[None]:
    """Return a future that ends when the actor is there and has run what was submitted before.

    It raises ActorDiedError if the actor could not be made, or is gone.
    """
    return _submit(handle, "", (), {})


def destroy(handle: ActorHandle, *, force: bool = False) -> ScalerFuture[None]:
    """Let an actor end after the calls that were submitted before; later calls fail at once.

    Args:
        handle: The actor.
        force: Kill it now. Whatever it runs, and all that waits, fails with ActorDiedError.

    The future ends with the actor; it raises ActorDiedError if another end came first.

    """
    ending = _Ending(handle._actor, "")
    future: ScalerFuture[None] = _send(handle, ending, (), {})
    if force:
        session = _session_of(handle)
        session.connection.say(m.EndActor(handle._actor))
        session.push()
    return future


def _submit(
    handle: ActorHandle,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    is_method: bool = True,
) -> ScalerFuture[Any]:
    function = handle._calls.get((name, is_method))
    if function is None:
        function = _Call(handle._actor, name, is_method=is_method)
        handle._calls[name, is_method] = function
    return _send(handle, function, args, kwargs)


def _send(
    handle: ActorHandle, function: _Call, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ScalerFuture[Any]:
    actor = handle._actor
    if actor in _here:
        raise ConfigError(
            f"the actor {_label_of(actor)} called itself through a handle: that call would begin "
            "only after this one has ended. Call the method of the object"
        )
    _check_arguments(args, kwargs)
    return _session_of(handle).submit(function, args, kwargs, handle._options)


def _check_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if any(isinstance(one, Future) for one in (*args, *kwargs.values())):
        raise TypeError(
            "an actor's calls run in the order of their submission, so none can wait for a "
            "future: pass future.result()"
        )


def _session_of(handle: ActorHandle) -> Session:
    """Return what a handle's calls are submitted through."""
    kept = handle._session
    if kept is not None and kept.is_open:
        return kept
    session = worker_context.nested_session(*handle._cluster)
    if session is not None:
        # Not kept: the worker may open another one.
        return session
    address, directory = handle._cluster
    for one in open_sessions():
        is_there = one.connection.welcome.homes[0].disk == directory != ""
        if one.address == address or is_there:
            handle._session = one
            return one
    if kept is not None:
        # It says itself why nothing can be submitted through it.
        return kept
    raise ConfigError(
        f"there is no client here of the cluster in which the actor {_label_of(handle._actor)} "
        "lives: make one first"
    )
