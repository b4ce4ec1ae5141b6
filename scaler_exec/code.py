"""Code on workers: modules that they lack, plugins that set them up, calls on all of them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle

from scaler_cluster import arguments
from scaler_cluster.client.plugins import Environ, PipInstall, WorkerPlugin
from scaler_cluster.client.present_workers import WorkerInfo, call_on_workers
from scaler_cluster.client.session_code import code_of
from scaler_cluster.client.uploads import read_directory, read_file
from scaler_cluster.texts import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from scaler_cluster.client.session import Session
    from scaler_exec import Client, ScalerExecutor

T = TypeVar("T")

__all__ = [
    "Environ",
    "PipInstall",
    "WorkerInfo",
    "WorkerPlugin",
    "register_pickle_by_value",
    "register_plugin",
    "run",
    "unregister_plugin",
    "upload_directory",
    "upload_file",
]


def upload_file(client: Client | ScalerExecutor, path: str | PathLike[str]) -> None:
    """Have workers import modules from a file, for the tasks of this client alone.

    All workers do so: those that are there when this returns, and those that come later, until the
    client leaves. A file of the same name takes the place of the one before: tasks that are
    submitted from then on import its modules anew.

    Args:
        client: Whose tasks these are. Views and pickled copies: see the page on code on workers.
        path: A module (``.py``), or modules and packages of pure Python in a ``.zip``, ``.whl`` or
            ``.egg``; 1 GiB and 20,000 files at most.

    Raises:
        ConfigError: It is no such file, or this is called in a task.
        OSError: It cannot be read.
        CodeError: A worker cannot use it; then none does.
        ClusterUnreachableError: The scheduler does not say which workers there are.

    """
    session = _session_of(client)
    code_of(session).upload(session, read_file(Path(path)))


def upload_directory(client: Client | ScalerExecutor, path: str | PathLike[str]) -> None:
    """Have workers import a package, or what stands in a directory, as :func:`upload_file` does.

    A directory with an ``__init__.py`` is a package. Of any other one, the modules and packages
    in it are imported by their names. Files of data come along; directories such as ``.git`` and
    ``__pycache__`` do not. Raises as :func:`upload_file`.
    """
    session = _session_of(client)
    code_of(session).upload(session, read_directory(Path(path)))


def register_plugin(
    client: Client | ScalerExecutor, plugin: WorkerPlugin | Environ, name: str | None = None
) -> str:
    """Set each worker up before it runs the next task of this client, also if it comes later.

    Args:
        client: Whose tasks these are.
        plugin: Pickled; its ``setup(worker)`` is called once in each worker with a
            :class:`WorkerInfo`. Its ``teardown(worker)``, if it has one, is called when it is
            replaced or unregistered, and as a worker is sent off; not in workers that are killed,
            as those of a cluster that ends.
        name: A plugin of the same name is replaced; default: the name of its class.

    Returns:
        The name.

    Raises:
        TypeError: It has no ``setup``.
        PayloadError: It cannot be pickled.
        CodeError: It raised in a worker; then it is not registered.
        ConfigError: This is called in a task.
        ClusterUnreachableError: The scheduler does not say which workers there are.

    """
    name = type(plugin).__qualname__ if name is None else name
    arguments.instance("name", name, str, "a text")
    session = _session_of(client)
    if isinstance(plugin, Environ):
        code_of(session).set_variables(session, name, plugin.variables)
    else:
        wants = "an object with setup(worker), not a class"
        if isinstance(plugin, type) or not callable(getattr(plugin, "setup", None)):
            raise TypeError(f"plugin must be {wants}, not {shown(plugin)}")
        code_of(session).register(session, name, plugin)
    return name


def unregister_plugin(client: Client | ScalerExecutor, name: str) -> None:
    """Have workers tear down what :func:`register_plugin` has registered by this name.

    Raises ConfigError if there is none, or in a task.
    """
    session = _session_of(client)
    code_of(session).unregister(session, name)


def run(
    client: Client | ScalerExecutor,
    function: Callable[..., T],
    /,
    *args: Any,
    workers: Sequence[str] | None = None,
    **kwargs: Any,
) -> dict[str, T]:
    """Call ``function(*args, **kwargs)`` once in each worker that is there now.

    A worker makes the call before all tasks that wait, once it has done what it was given before.
    If it leaves before it begins the call, or is killed for a task of others, the worker that is
    started in its place makes the call.

    Args:
        client: Whose cluster it is.
        function: What to call.
        args: Its positional arguments.
        workers: Names of workers and machines; default: all that are there.
        kwargs: Its keyword arguments.

    Returns:
        What each worker returned, by its name; ``HOST/PID`` if its cluster gave it none.

    Raises:
        TypeError: An argument has the wrong type.
        ConfigError: No worker has a name of ``workers``, or this is called in a task.
        ClusterUnreachableError: The scheduler does not say which workers there are.
        Exception: What the call raised in the first worker in which it raised; WorkerDiedError if
            the call ended its worker, TaskLostError if it was lost with a worker that had begun
            it, or if one left and none is started in its place.

    """
    arguments.function(function, "run")
    named = None if workers is None else arguments.names("workers", workers)
    outcomes = call_on_workers(_session_of(client), function, args, kwargs, named)
    for outcome in outcomes.values():
        if outcome.error is not None:
            raise outcome.error
    return {worker.name: outcome.value for worker, outcome in outcomes.items()}


def register_pickle_by_value(module: ModuleType) -> None:
    """Let functions and classes of a module travel with all they name, from now on.

    Then workers need not have it. It counts for all clients of this process, and for the modules
    inside of a package, too. ``cloudpickle.unregister_pickle_by_value`` ends it.

    Raises:
        TypeError: It is no module.
        ValueError: The module was not imported.

    """
    arguments.instance("module", module, ModuleType, "a module, not its name")
    cloudpickle.register_pickle_by_value(module)


def _session_of(client: Client | ScalerExecutor) -> Session:
    session: Session | None = getattr(client, "_session", None)
    if session is None:
        raise TypeError(f"client must be a Client or a ScalerExecutor, not {shown(client)}")
    return session
