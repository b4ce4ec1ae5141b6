"""A stand-in of IBM Symphony's module, with what a client and a service use of it.

Not the product: its cluster is as many processes as SOAM_SLOTS says, each of which runs the program
SOAM_SERVICE. What goes wrong is said by files in the directory SOAM_TROUBLE:

- ``hasty``: the answer of a task comes before send_task_input returns;
- ``delay``: an answer waits as many seconds as the file says;
- ``no session``: create_session fails;
- ``lost``: on_exception is called, the session is broken, and the file is removed.

An exception in a service fails its task, embedded if it can be pickled. A service whose process
dies fails its task without an embedded exception, and another process takes its place.
"""

from __future__ import annotations

import array
import contextlib
import itertools
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

LENGTH = struct.Struct(">I")
LOOK_S = 0.02
HASTE_S = 0.05
GUEST = "Guest"


class SoamException(Exception):
    """What the API raises; holds a lock, so that nobody can pickle it."""

    def __init__(self, text: str, embedded: BaseException | None = None) -> None:
        super().__init__(text)
        self._embedded = embedded
        self._lock = threading.Lock()

    def get_embedded_exception(self):
        return self._embedded


def trouble(name: str) -> Path | None:
    path = Path(os.environ["SOAM_TROUBLE"]) / name
    return path if path.exists() else None


# -- messages ----------------------------------------------------------------------------------


class _OutputStream:
    def __init__(self) -> None:
        self.data = b""

    def write_byte_array(self, data: array.array, start: int, count: int) -> None:
        assert data.typecode == "b"
        self.data += data[start : start + count].tobytes()


class _InputStream:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_byte_array(self, typecode: str) -> array.array:
        return array.array(typecode, self._data)


class Message:
    def on_serialize(self, stream: _OutputStream) -> None:
        raise NotImplementedError

    def on_deserialize(self, stream: _InputStream) -> None:
        raise NotImplementedError


def _bytes_of(message: Message) -> bytes:
    stream = _OutputStream()
    message.on_serialize(stream)
    return stream.data


# -- the client --------------------------------------------------------------------------------


def initialize() -> None:
    """Begin; the real one loads what it needs."""


def uninitialize() -> None:
    """End."""


class DefaultSecurityCallback:
    def __init__(self, user: str, password: str) -> None:
        self.who = user, password


class SessionFlags:
    PARTIAL_ASYNC = 3


class SessionCloseFlags:
    DESTROY_ON_CLOSE = 1


class SessionCreationAttributes:
    def set_session_type(self, kind: str) -> None:
        assert kind == "RecoverableAllHistoricalData"

    def set_session_name(self, name: str) -> None:
        assert name

    def set_session_flags(self, flags: int) -> None:
        assert flags == SessionFlags.PARTIAL_ASYNC

    def set_session_callback(self, callback: SessionCallback) -> None:
        self.callback = callback


class TaskSubmissionAttributes:
    def set_task_input(self, message: Message) -> None:
        self.message = message


class SessionCallback:
    def on_response(self, task_output_handle: TaskOutputHandle) -> None:
        raise NotImplementedError

    def on_exception(self, exception: SoamException) -> None:
        raise NotImplementedError


def connect(application: str, security: DefaultSecurityCallback) -> Connection:
    assert security.who == (GUEST, GUEST)
    if application != os.environ["SOAM_APPLICATION"]:
        raise SoamException(f"application {application} is not registered")
    return Connection()


class Connection:
    def get_id(self) -> str:
        return "connection-1"

    def create_session(self, attributes: SessionCreationAttributes) -> Session:
        if trouble("no session"):
            raise SoamException("no session for you")
        return Session(attributes.callback)

    def close(self) -> None:
        """Let go."""


class TaskInputHandle:
    def __init__(self, task: str) -> None:
        self._task = task

    def get_id(self) -> str:
        return self._task


class TaskOutputHandle(TaskInputHandle):
    def __init__(self, task: str, data: bytes, error: SoamException | None) -> None:
        super().__init__(task)
        self._data = data
        self._error = error

    def is_successful(self) -> bool:
        return self._error is None

    def populate_task_output(self, message: Message) -> None:
        message.on_deserialize(_InputStream(self._data))

    def get_exception(self) -> SoamException | None:
        return self._error


class Session:
    def __init__(self, callback: SessionCallback) -> None:
        self._callback = callback
        self._numbers = itertools.count(1)
        self._tasks: queue.Queue[tuple[str, bytes, threading.Event] | None] = queue.Queue()
        self._is_over = threading.Event()
        self._services: set[Any] = set()
        slots = int(os.environ["SOAM_SLOTS"])
        self._slots = [threading.Thread(target=self._run_slot) for _ in range(slots)]
        for one in (*self._slots, threading.Thread(target=self._watch, daemon=True)):
            one.start()

    def get_id(self) -> str:
        return "session-1"

    def send_task_input(self, attributes: TaskSubmissionAttributes) -> TaskInputHandle:
        if self._is_over.is_set():
            raise SoamException("the session is closed")
        task, answered = str(next(self._numbers)), threading.Event()
        self._tasks.put((task, _bytes_of(attributes.message), answered))
        if trouble("hasty"):
            # Not for ever: whoever sends may keep the callback from returning.
            answered.wait(5)
        return TaskInputHandle(task)

    def close(self, flags: int) -> None:
        assert flags == SessionCloseFlags.DESTROY_ON_CLOSE
        self._end()
        for one in self._slots:
            one.join()

    def _end(self) -> None:
        self._is_over.set()
        for _ in self._slots:
            self._tasks.put(None)
        for one in list(self._services):
            one.kill()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_S):
            path = trouble("lost")
            if path:
                path.unlink()
                self._end()
                self._callback.on_exception(SoamException("the session manager is gone"))

    def _run_slot(self) -> None:
        service = _start_service()
        self._services.add(service)
        while (given := self._tasks.get()) is not None and not self._is_over.is_set():
            task, data, answered = given
            try:
                handle = TaskOutputHandle(task, *_ask(service, data))
            except (OSError, struct.error):
                handle = TaskOutputHandle(task, b"", SoamException("service instance exited"))
                service.kill()
                service.wait()
                self._services.discard(service)
                service = _start_service()
                self._services.add(service)
            if path := trouble("delay"):
                time.sleep(float(path.read_text()))
            if self._is_over.is_set():
                break
            teller = threading.Thread(target=self._callback.on_response, args=(handle,))
            teller.start()
            # A hasty answer has been told by then, or whoever sends keeps it from being told.
            teller.join(HASTE_S)
            answered.set()
            teller.join()
        service.stdin.close()
        service.kill()
        service.wait()
        service.stdout.close()


def _start_service() -> Any:
    return subprocess.Popen(
        [sys.executable, os.environ["SOAM_SERVICE"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _ask(service: Any, data: bytes) -> tuple[bytes, SoamException | None]:
    service.stdin.write(LENGTH.pack(len(data)) + data)
    service.stdin.flush()
    kind = service.stdout.read(1)
    (length,) = LENGTH.unpack(service.stdout.read(LENGTH.size))
    answer = service.stdout.read(length)
    if kind == b"R":
        return answer, None
    text, embedded = pickle.loads(answer)
    return b"", SoamException(text, pickle.loads(embedded) if embedded else None)


# -- the service -------------------------------------------------------------------------------


class TaskContext:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.output = b""

    def populate_task_input(self, message: Message) -> None:
        message.on_deserialize(_InputStream(self._data))

    def set_task_output(self, message: Message) -> None:
        self.output = _bytes_of(message)


class ServiceContainer:
    def on_create_service(self, service_context: Any) -> None:
        raise NotImplementedError

    def on_session_enter(self, session_context: Any) -> None:
        raise NotImplementedError

    def on_invoke(self, task_context: TaskContext) -> None:
        raise NotImplementedError

    def on_session_leave(self) -> None:
        raise NotImplementedError

    def on_destroy_service(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        """Serve until the cluster is gone."""
        source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self.on_create_service(None)
        self.on_session_enter(None)
        while header := source.read(LENGTH.size):
            (length,) = LENGTH.unpack(header)
            context = TaskContext(source.read(length))
            try:
                self.on_invoke(context)
                kind, answer = b"R", context.output
            except Exception as error:
                embedded = b""
                with contextlib.suppress(Exception):
                    embedded = pickle.dumps(error)
                    pickle.loads(embedded)
                kind, answer = b"E", pickle.dumps((f"on_invoke raised {error!r}", embedded))
            sink.write(kind + LENGTH.pack(len(answer)) + answer)
            sink.flush()
        self.on_session_leave()
        self.on_destroy_service()
