"""Code for workers: files, plugins, and calls on each of them; see :mod:`scaler_exec.code`."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaler_exec import code
from scaler_exec.distributed.awaiting import awaited
from scaler_exec.distributed.submitting import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from scaler_cluster.client.client import Client as EngineClient


class WorkerPlugin:
    """What sets workers up: a subclass has ``setup``, ``teardown``, or both."""

    def setup(self, worker: code.WorkerInfo) -> None:
        """Called in each worker before it runs the next task of the client."""

    def teardown(self, worker: code.WorkerInfo) -> None:
        """Called when the plugin is replaced or unregistered, and as a worker is sent off."""


class PipInstall(code.PipInstall):
    """See :class:`scaler_exec.code.PipInstall`. Workers are not started anew."""

    def __init__(
        self,
        packages: Sequence[str],
        pip_options: Sequence[str] | None = None,
        restart_workers: bool = False,
    ) -> None:
        if restart_workers:
            raise NotImplementedError(
                "PipInstall(restart_workers=True): workers are not started anew; what they have "
                "imported stays as it is"
            )
        super().__init__(packages, pip_options or ())


class Environ(code.Environ):
    """See :class:`scaler_exec.code.Environ`."""

    def __init__(self, environ: Mapping[str, object] | None = None) -> None:
        super().__init__(environ or {})


class UploadFile:
    """A plugin that is a file of modules; see :func:`scaler_exec.code.upload_file`."""

    upload = staticmethod(code.upload_file)

    def __init__(self, filepath: str | PathLike[str], load: bool = True) -> None:
        self.path = filepath


class UploadDirectory:
    """A plugin that is a directory; see :func:`scaler_exec.code.upload_directory`.

    What else ``distributed`` takes is ignored: workers are not started anew, and import from there.
    """

    upload = staticmethod(code.upload_directory)

    def __init__(self, path: str | PathLike[str], **_: object) -> None:
        self.path = path


class Coding:
    """The part of a client that sends code to workers."""

    _engine: EngineClient
    asynchronous: bool

    def _await_start(self) -> None:
        """Wait for the workers of a new LocalCluster, see :class:`Observing`."""
        raise NotImplementedError

    @awaited
    def upload_file(self, filename: str | PathLike[str], load: bool = True) -> None:
        """Have all workers import modules from a file, for the tasks of this client.

        With ``load``, a module of Python is compiled here first: raises SyntaxError, and as
        :func:`scaler_exec.code.upload_file`.
        """
        path = Path(filename)
        if load and path.suffix == ".py":
            compile(path.read_bytes(), path, "exec")
        code.upload_file(self._engine, filename)

    @awaited
    def register_plugin(
        self, plugin: Any, name: str | None = None, idempotent: object = None
    ) -> str | None:
        """Set each worker up, now and later; return the name of the plugin.

        ``idempotent`` is ignored: one of the same name is replaced. Raises as
        :func:`scaler_exec.code.register_plugin`.
        """
        if isinstance(plugin, (UploadFile, UploadDirectory)):
            plugin.upload(self._engine, plugin.path)
            return None
        name = name or getattr(plugin, "name", None)
        return code.register_plugin(self._engine, plugin, name)

    @awaited
    def unregister_worker_plugin(self, name: str, nanny: object = None) -> None:
        """Have workers tear a plugin down; ``nanny`` is ignored. Raises ConfigError."""
        code.unregister_plugin(self._engine, name)

    @awaited
    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        workers: str | Sequence[str] | None = None,
        wait: bool = True,
        nanny: bool = False,
        on_error: str = "raise",
        **kwargs: Any,
    ) -> dict[str, Any] | None:
        """Call a function once in each worker that is there; return what each returned, by name.

        One of coroutines is run to its end. In a new LocalCluster, all of its workers are there.

        Args:
            function: What to call.
            *args: What it takes.
            workers: Names of workers or machines; a text is one. Default: all.
            wait: Whether to return what comes; else it returns None at once, and what a call
                raises is told by :func:`threading.excepthook`.
            nanny: Must be False: there are none.
            on_error: "raise" what the first one raised; "return" has the exception in place of
                what a call returned, "ignore" leaves it out.
            **kwargs: What it takes by name.

        Raises NotImplementedError for nannies, ValueError, and as
        :func:`scaler_exec.code.run`.

        """
        if nanny:
            raise NotImplementedError("run() calls in workers: there are no nannies")
        if on_error not in {"raise", "return", "ignore"}:
            raise ValueError(f"on_error must be 'raise', 'return' or 'ignore', not {on_error!r}")
        named = [workers] if isinstance(workers, str) else workers
        call = partial(self._run, plain(function), args, kwargs, named, on_error)
        if wait:
            return call()
        threading.Thread(target=call, name="scaler-run", daemon=True).start()
        return None

    def _run(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        workers: Sequence[str] | None,
        on_error: str,
    ) -> dict[str, Any]:
        self._await_start()
        if on_error != "raise":
            function = partial(_outcome_of, function)
        came = code.run(self._engine, function, *args, workers=workers, **kwargs)
        if on_error == "raise":
            return came
        return {
            name: value if error is None else error
            for name, (value, error) in came.items()
            if error is None or on_error == "return"
        }


def _outcome_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what a call returned and None, or None and what it raised; in a worker."""
    try:
        return function(*args, **kwargs), None
    except Exception as error:
        return None, error
