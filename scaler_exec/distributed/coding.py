"""Code for workers: files, plugins, and calls on each of them; see :mod:`scaler_exec.code`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaler_exec import code
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

    def _await_start(self) -> None:
        """Wait for the workers of a new LocalCluster, see :class:`Observing`."""
        raise NotImplementedError

    def upload_file(self, filename: str | PathLike[str], load: bool = True) -> None:
        """Have all workers import modules from a file, for the tasks of this client.

        With ``load``, a module of Python is compiled here first: raises SyntaxError, and as
        :func:`scaler_exec.code.upload_file`.
        """
        path = Path(filename)
        if load and path.suffix == ".py":
            compile(path.read_bytes(), path, "exec")
        code.upload_file(self._engine, filename)

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

    def unregister_worker_plugin(self, name: str, nanny: object = None) -> None:
        """Have workers tear a plugin down; ``nanny`` is ignored. Raises ConfigError."""
        code.unregister_plugin(self._engine, name)

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        workers: str | Sequence[str] | None = None,
        wait: bool = True,
        nanny: bool = False,
        on_error: str = "raise",
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Call a function once in each worker that is there; return what each returned, by name.

        One of coroutines is run to its end. In a new LocalCluster, all of its workers are there.
        Raises NotImplementedError if it is not to wait, is for nannies, or an error is to be
        returned; and as :func:`scaler_exec.code.run`.
        """
        if nanny or not wait or on_error != "raise":
            raise NotImplementedError(
                "run() calls in workers alone, waits for all, and raises the first error"
            )
        self._await_start()
        return code.run(self._engine, plain(function), *args, workers=workers, **kwargs)
