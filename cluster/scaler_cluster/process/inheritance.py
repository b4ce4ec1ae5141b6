"""What the workers of an embedded cluster inherit from the program when they start.

Locks, queues, events, pipes and shared values of ``multiprocessing`` refuse to be pickled but for a
process that is being started: then semaphores go by name, and descriptors by number.
"""

from __future__ import annotations

import os
import threading
from io import BytesIO
from multiprocessing import context, reduction, util
from multiprocessing.synchronize import SemLock
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import INTERRUPTS, PayloadError
from scaler_cluster.pickling.by_value import PROTOCOL, Pickler
from scaler_cluster.pickling.payload import function_name
from scaler_cluster.pickling.unpicklable import why
from scaler_cluster.texts import named

if TYPE_CHECKING:
    from collections.abc import Callable


FINISH_S = 2.0
"""A worker that has not ended in order after this is killed: nothing reads what it still writes."""


class _Number:
    """A descriptor that has the same number in the process that unpickles it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def detach(self) -> int:
        """Return the descriptor, as ``multiprocessing`` asks for it."""
        return self._fd


class _Heirs:
    """Stands in for the process that ``multiprocessing`` believes is being started."""

    DupFd = _Number

    def __init__(self) -> None:
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        """Note that a descriptor is to be inherited, by its number."""
        self.fds.append(fd)
        return fd


class _Pickler(Pickler):
    def __init__(self, file: BytesIO) -> None:
        reducers = reduction.ForkingPickler(BytesIO()).dispatch_table
        # Its base class looks for the table, so it is made first.
        self.dispatch_table = {**reducers, **Pickler.dispatch_table}
        super().__init__(file, PROTOCOL)

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, SemLock) and _is_nameless(value):
            raise PayloadError(
                f"a {type(value).__name__} of multiprocessing's start method 'fork' reaches forked "
                "children of this process only, and workers are none. Make it with "
                "multiprocessing.get_context('spawn'), or with a multiprocessing.Manager()."
            )
        return super().reducer_override(value)


def _is_nameless(lock: Any) -> bool:
    return lock._semlock.name is None


def dumps_initializer(
    initializer: Callable[..., object], initargs: tuple[Any, ...]
) -> tuple[bytes, list[int]]:
    """Pickle the call of an initializer; return also the descriptors that workers must inherit.

    The caller must keep ``initargs`` as long as a worker may start: named semaphores go with them.
    Raises PayloadError, which names what is at fault.
    """
    heirs = _Heirs()
    # Any: it takes the place of a process, and is none.
    popen: Any = heirs
    context.set_spawning_popen(popen)
    try:
        return _dumps("", (initializer, initargs)), heirs.fds
    except PayloadError:
        _dumps("", initializer)
        for index, value in enumerate(initargs):
            _dumps(f"argument {index} of {function_name(initializer)}: ", value)
        raise
    finally:
        context.set_spawning_popen(None)


def finish(*_: object) -> None:
    """End this worker once its queues have written what tasks have put into them.

    A handler of signals.
    """
    watch = threading.Timer(FINISH_S, os._exit, (0,))
    watch.daemon = True
    watch.start()
    # Any: what ``multiprocessing`` does at an exit is private.
    private: Any = util
    private._exit_function()
    os._exit(0)


def _dumps(name: str, value: object) -> bytes:
    file = BytesIO()
    try:
        _Pickler(file).dump(value)
    except INTERRUPTS:
        raise
    except BaseException as error:
        reason = str(error) if isinstance(error, PayloadError) else why(value, error)
        raise PayloadError(
            f"the initializer: {name}cannot pickle {named(value)}: {reason}"
        ) from error
    return file.getvalue()
