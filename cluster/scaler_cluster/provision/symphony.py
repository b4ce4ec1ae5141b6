"""Calls that IBM Spectrum Symphony runs: each is a task of one session.

What is sent is the pickle of ``(function, *args)``, and what comes back that of the result: a
service as the documents of the Scaler system print it takes the one and returns the other. A task
that runs cannot be stopped: it is forgotten.
"""

from __future__ import annotations

import array
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import cloudpickle

from scaler_cluster.errors import ClusterUnreachableError, ConfigError, RemoteCallError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.config.proxy_settings import SymphonyAccess
    from scaler_cluster.provision.remote import RemoteCall

SESSION_TYPE = "RecoverableAllHistoricalData"
SESSION_NAME = "ScalerSession"
USER = "Guest"


class SymphonyRunner:
    """Has a session with an application; ``lost`` is called with the reason if that breaks."""

    def __init__(self, settings: SymphonyAccess, lost: Callable[[str], object]) -> None:
        self._api = api = import_api()
        self._name = settings.service_name
        self._lost = lost
        self._calls: dict[str, RemoteCall] = {}
        """By the ids of their tasks."""
        self._lock = threading.Lock()
        """Held while a task is sent: its answer may come before its id is known."""
        self._is_closed = False
        self._message = _message_class(api)
        api.initialize()
        try:
            security = api.DefaultSecurityCallback(USER, USER)
            self._connection = api.connect(self._name, security)
            attributes = api.SessionCreationAttributes()
            attributes.set_session_type(SESSION_TYPE)
            attributes.set_session_name(SESSION_NAME)
            attributes.set_session_flags(api.SessionFlags.PARTIAL_ASYNC)
            attributes.set_session_callback(_callback_class(api)(self))
            self._session = self._connection.create_session(attributes)
        except Exception as error:
            api.uninitialize()
            raise ClusterUnreachableError(
                f"IBM Symphony opens no session with the application {self._name}: "
                f"{type(error).__name__}: {error}"
            ) from None

    def submit(self, call: RemoteCall) -> None:
        """Send a call; raises RemoteCallError."""
        message = self._message(cloudpickle.dumps((call.function, *call.args)))
        attributes = self._api.TaskSubmissionAttributes()
        attributes.set_task_input(message)
        with self._lock:
            if self._is_closed:
                raise RemoteCallError("the session with IBM Symphony is over")
            try:
                task = str(self._session.send_task_input(attributes).get_id())
            except Exception as error:
                raise RemoteCallError(f"IBM Symphony takes no task: {error}") from None
            self._calls[task] = call

    def cancel(self, call: RemoteCall) -> None:
        """Forget a call."""
        with self._lock:
            for task, one in list(self._calls.items()):
                if one is call:
                    del self._calls[task]

    def close(self) -> None:
        """Close the session and the connection."""
        with self._lock:
            self._is_closed = True
            self._calls.clear()
        # It may be broken, and is of no use any more.
        with contextlib.suppress(Exception):
            self._session.close(self._api.SessionCloseFlags.DESTROY_ON_CLOSE)
        with contextlib.suppress(Exception):
            self._connection.close()
        self._api.uninitialize()

    # -- by threads of the API -----------------------------------------------------------------

    def answered(self, handle: Any) -> None:
        """A task has ended."""
        with self._lock:
            call = self._calls.pop(str(handle.get_id()), None)
        if call is None:
            return
        try:
            if handle.is_successful():
                message = self._message()
                handle.populate_task_output(message)
                call.complete(message.payload)
            else:
                call.fail(_error_of(handle.get_exception()))
        except Exception as error:
            call.fail(RemoteCallError(f"IBM Symphony does not hand over an answer: {error}"))

    def broken(self, error: object) -> None:
        """The session is lost, and all its tasks with it."""
        with self._lock:
            is_closed, self._is_closed = self._is_closed, True
        if not is_closed:
            self._lost(f"IBM Symphony ended the session with {self._name}: {error}")


def _error_of(error: Any) -> BaseException:
    """Return what to tell of a task that failed, but for what its call itself has told.

    An exception of the API cannot be pickled.
    """
    embedded = error.get_embedded_exception()
    if isinstance(embedded, Exception) and not isinstance(embedded, type(error)):
        return RemoteCallError(
            f"the service failed outside of the call: {type(embedded).__name__}: {embedded}"
        )
    return RemoteCallError(f"IBM Symphony did not run the task to its end: {error}")


def import_api() -> Any:
    """Return the module of the product; raises ConfigError if it is not there."""
    with contextlib.suppress(ImportError):
        # It adds the folder for this version of Python to sys.path.
        import soamapiversion  # noqa: F401
    try:
        import soamapi
    except ImportError as error:
        raise ConfigError(
            f"IBM Symphony's module soamapi cannot be imported ({error}). It is no package of "
            "PyPI, but comes with the product: source its profile before this command, as in "
            "'. $SOAM_HOME/conf/profile.soam', which sets PYTHONPATH and LD_LIBRARY_PATH; and use "
            "a Python that the product supports"
        ) from None
    return soamapi


def _message_class(api: Any) -> Any:
    base: Any = api.Message

    class Message(base):  # type: ignore[misc]
        """Bytes, as services have them."""

        def __init__(self, payload: bytes = b"") -> None:
            super().__init__()
            self.payload = payload

        def on_serialize(self, stream: Any) -> None:
            """Write the bytes."""
            signed = array.array("b", self.payload)
            stream.write_byte_array(signed, 0, len(signed))

        def on_deserialize(self, stream: Any) -> None:
            """Read the bytes."""
            self.payload = bytes(memoryview(stream.read_byte_array("b")).cast("B"))

    return Message


def _callback_class(api: Any) -> Any:
    base: Any = api.SessionCallback

    class Callback(base):  # type: ignore[misc]
        """Tells a runner what the API tells."""

        def __init__(self, runner: SymphonyRunner) -> None:
            super().__init__()
            self._runner = runner

        def on_response(self, task_output_handle: Any) -> None:
            """A task has ended."""
            self._runner.answered(task_output_handle)

        def on_exception(self, exception: Any) -> None:
            """The session is lost."""
            self._runner.broken(exception)

    return Callback
