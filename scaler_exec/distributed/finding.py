"""The client of a task, or of the program."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING, Any

from scaler_cluster.client import worker_context
from scaler_cluster.errors import ConfigError
from scaler_exec.distributed.client import Client, SchedulerAddress
from scaler_exec.distributed.current import default_client, find_current
from scaler_exec.distributed.futures_of import futures_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def get_client(
    address: str | None = None, timeout: float | str | None = None, resolve_address: bool = True
) -> Any:
    """Return a client of the cluster whose task calls this, else the default client.

    With an ``address``, it may be a new client. Raises ValueError if there is none.
    """
    if worker_context.nested_session(address) is not None:
        return Client(address, timeout=timeout)
    found = find_current()
    if found is not None and address in {None, found.scheduler.address}:  # type: ignore[attr-defined]
        return found
    return Client(address, timeout=timeout) if address else default_client()


@contextlib.contextmanager
def worker_client(
    timeout: float | str | None = None, separate_thread: bool = True
) -> Iterator[Client]:
    """Yield a client in a task. A task that waits for others gives its place to them by itself.

    Raises ConfigError, which is a ValueError, outside of tasks.
    """
    if worker_context.nested_session() is None:
        raise ConfigError("this is no task: worker_client() yields a client in one")
    yield Client(timeout=timeout)


local_client = worker_client


class TaskWorker:
    """The worker that runs a task, as :func:`get_worker` returns it.

    A program may set attributes of its own: all tasks that run in the process later find them.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name = self.address = name
        self.scheduler = SchedulerAddress(address)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a worker has a name, an address, a scheduler, and what programs set; not {name!r}"
        )


def get_worker() -> Any:
    """Return the :class:`TaskWorker` that runs this task, always the same one in a process.

    Raises ValueError outside of tasks.
    """
    session = worker_context.nested_session()
    if session is None:
        raise ValueError("No worker found: this is no task")
    return _this_worker(worker_context.name, session.address)


_this_worker = cache(TaskWorker)


def fire_and_forget(obj: Any) -> None:
    """Let tasks be run though nobody keeps futures of them.

    :meth:`Client.close` waits for them.
    """
    for one in futures_of(obj):
        one.client.detach(one)
