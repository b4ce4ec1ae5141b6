"""Locks, semaphores, events, queues and variables that programs and tasks of a cluster share.

Each object is no more than a name: what has the name is in the scheduler. The names are those of
``distributed``, and so are the methods.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any, ClassVar

from scaler_cluster import arguments
from scaler_cluster.client import worker_context
from scaler_cluster.client.session import Session
from scaler_cluster.core.client.coordination import Asked
from scaler_cluster.errors import INTERRUPTS, ConfigError, PayloadError
from scaler_cluster.ids import NAME_CHARS_MAX
from scaler_cluster.pickling import payload
from scaler_cluster.texts import shown
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

    from scaler_cluster.wire.batch import Buffer


class _Named:
    """What has a name in a scheduler, and the session that leads there."""

    _kind: ClassVar[str]

    def __init__(self, names: tuple[str, ...], client: object, most: int = 0) -> None:
        self._names = names
        self._most = most
        self._given = None if client is None else _session_of(client)

    @property
    def name(self) -> str:
        """Whoever uses this name, in any process of the cluster, means the same."""
        return self._names[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(self._names)}>"

    def __getstate__(self) -> dict[str, Any]:
        """Take the name along, but neither the client nor what this object holds."""
        return {"_names": self._names, "_most": self._most}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _given=None)

    @property
    def _session(self) -> Session:
        if self._given is not None:
            return self._given
        session = worker_context.nested_session()
        if session is None:
            name = type(self).__name__
            raise ConfigError(
                f"this {name} has no client: make it as {name}(..., client=client), with a Client "
                "or a ScalerExecutor; only inside of a task it needs none"
            )
        return session

    def _asked(
        self, act: str, timeout: float | None = None, *, count: int = 1, value: bytes = b""
    ) -> Asked:
        """Return a request for :meth:`_answer_to`.

        With a ``timeout`` of 0 or less the scheduler answers it at once.
        """
        may_wait = timeout is None or timeout > 0
        message = m.Coordinate(
            0, self._kind, act, self._names, count, self._most, may_wait, value=value
        )
        return Asked(message, self._session.scope_number)

    def _answer_to(self, asked: Asked, timeout: float | None = None) -> m.Coordinated | None:
        """Ask the scheduler; return None if it cannot be done in time, and then is not."""
        answer = self._session.ask(asked, timeout if asked.message.may_wait else None)
        return answer if answer is not None and answer.order else None

    def _now(self, act: str, value: bytes = b"", timeout: float | None = None) -> m.Coordinated:
        """Do what the scheduler does at once; raises TimeoutError if it does not answer in time."""
        answer = self._answer_to(self._asked(act, timeout, value=value), timeout)
        if answer is None:
            raise TimeoutError(f"the scheduler did not answer in {timeout:g} s")
        return answer


class _Leased(_Named):
    """What is held until it is given back."""

    def __init__(self, names: tuple[str, ...], client: object, most: int = 0) -> None:
        super().__init__(names, client, most)
        self._leases: list[Asked] = []
        """What this object has acquired, in order."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._leases = []

    def _acquire(self, timeout: float | None, count: int = 1) -> bool:
        asked = self._asked(m.ACQUIRE, timeout, count=count)
        try:
            if self._answer_to(asked, timeout) is None:
                return False
            self._leases.append(asked)
        except BaseException:
            # Ctrl-C may come between the answer and the note of it.
            self._session.withdraw(asked)
            raise
        return True

    def release(self) -> None:
        """Give back what :meth:`acquire` has acquired, of several times the first.

        Raises:
            RuntimeError: This object holds nothing. Perhaps the task that acquired it has ended, or
                the scheduler gave it to others because it heard nothing of this process for too
                long.

        """
        for asked in list(self._leases):
            was_held = self._session.withdraw(asked)
            # Only now: after Ctrl-C it can be released again. Another thread may have been faster.
            with contextlib.suppress(ValueError):
                self._leases.remove(asked)
            if was_held:
                return
        raise RuntimeError(
            f"{self!r} is not held by this object: it was not acquired, it was released, its task "
            "has ended, or the scheduler has given it to others as this process was silent"
        )

    def _held(self) -> int:
        return self._now(m.LOOK).count

    def __enter__(self) -> Self:
        """Acquire it; wait as long as that takes."""
        self._acquire(None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release it."""
        self.release()


class Lock(_Leased):
    """A lock that one holder in the cluster has at a time; who waits gets it in turn.

    It ends with its holder: if the task that acquired it ends, its worker dies, or the client of
    the program leaves or dies, the next one that waits gets it. It is not reentrant.

    Args:
        name: What others call it; default: a name that nobody else has. A pickled copy has it too.
        client: A Client or ScalerExecutor of the cluster. Inside a task it is not needed.

    Raises:
        TypeError: An argument has the wrong type.
        ConfigError: The name is empty or longer than 255 characters.

    """

    _kind = m.LOCK

    def __init__(self, name: str | None = None, client: object = None) -> None:
        super().__init__((_read_name(name),), client)

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock; return False if it is not to be had in ``timeout`` seconds.

        Default: wait as long as it takes; not at all if not ``blocking``.
        """
        return self._acquire(_limit(blocking, timeout))

    def locked(self) -> bool:
        """Return True if somebody holds the lock."""
        return self._held() > 0


class MultiLock(_Leased):
    """Several locks that are acquired together: either all, or none.

    Each name is that of a :class:`Lock` as well. Those who wait cannot block each other.

    Args:
        names: The names of the locks, at most 100.
        client: A Client or ScalerExecutor of the cluster. Inside a task it is not needed.

    Raises:
        TypeError: An argument has the wrong type.
        ConfigError: There is no name, one comes twice, or there are too many.

    """

    _kind = m.LOCK

    def __init__(self, names: Sequence[str], client: object = None) -> None:
        if isinstance(names, str):
            raise TypeError(f"names must be a list of names, not {shown(names)}")
        read = tuple(map(_read_name, names))
        if not 0 < len(set(read)) == len(read) <= m.LOCKS_MAX:
            raise ConfigError(
                f"names must be 1 to {m.LOCKS_MAX} different names, not {shown(names)}"
            )
        super().__init__(read, client)

    @property
    def names(self) -> list[str]:
        """The names of the locks."""
        return list(self._names)

    def acquire(
        self, blocking: bool = True, timeout: float | None = None, num_locks: int | None = None
    ) -> bool:
        """Acquire all of the locks, or ``num_locks`` of them, whichever are free first.

        Returns False if they are not to be had in ``timeout`` seconds; default: wait as long as it
        takes, not at all if not ``blocking``. Raises ConfigError if there are not so many locks.
        """
        count = len(self._names)
        if num_locks is not None:
            count = arguments.whole("num_locks", num_locks, 1)
        if count > len(self._names):
            raise ConfigError(f"num_locks must be {len(self._names)} at most, not {count}")
        return self._acquire(_limit(blocking, timeout), count)

    def __enter__(self) -> Self:
        """Acquire all of the locks; wait as long as that takes."""
        self._acquire(None, len(self._names))
        return self


class Semaphore(_Leased):
    """A number of leases, of which each holder has one; who waits gets one in turn.

    A lease ends with its holder, as a :class:`Lock` does.

    Args:
        max_leases: How many there are; each object with this name says the same.
        name: What others call it; default: a name that nobody else has. A pickled copy has it too.
        client: A Client or ScalerExecutor of the cluster. Inside a task it is not needed.

    Raises:
        TypeError: An argument has the wrong type.
        ConfigError: ``max_leases`` is less than 1, or the name is empty or too long.

    """

    _kind = m.SEMAPHORE

    def __init__(self, max_leases: int = 1, name: str | None = None, client: object = None) -> None:
        super().__init__((_read_name(name),), client, arguments.whole("max_leases", max_leases, 1))

    @property
    def max_leases(self) -> int:
        """How many leases there are."""
        return self._most

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire a lease; return False if none is to be had in ``timeout`` seconds.

        Default: wait as long as it takes; 0: not at all. An object may hold several leases.
        """
        return self._acquire(_limit(True, timeout))

    def get_value(self) -> int:
        """Return how many leases are held."""
        return self._held()


class Event(_Named):
    """A flag that all of the cluster see; it is not set at first.

    Args:
        name: What others call it; default: a name that nobody else has. A pickled copy has it too.
        client: A Client or ScalerExecutor of the cluster. Inside a task it is not needed.

    Raises:
        TypeError: An argument has the wrong type.
        ConfigError: The name is empty or longer than 255 characters.

    """

    _kind = m.EVENT

    def __init__(self, name: str | None = None, client: object = None) -> None:
        super().__init__((_read_name(name),), client)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set; return False if it is not in ``timeout`` seconds."""
        limit = _limit(True, timeout)
        return self._answer_to(self._asked(m.GET, limit), limit) is not None

    def set(self) -> None:
        """Set the event: everybody who waits for it goes on."""
        self._now(m.SET)

    def clear(self) -> None:
        """Let the event not be set: from now on, everybody waits for it."""
        self._now(m.CLEAR)

    def is_set(self) -> bool:
        """Return True if the event is set."""
        return self._now(m.LOOK).count > 0


class Queue(_Named):
    """Values in the order in which they were put, each of which one getter gets.

    A value is pickled, and has at most a megabyte (1 MiB) then.

    Args:
        name: What others call it; default: a name that nobody else has. A pickled copy has it too.
        client: A Client or ScalerExecutor of the cluster. Inside a task it is not needed.
        maxsize: How many values it may have; ``put`` waits for room. Default: 0, any number, or as
            somebody else has said. A pickled copy says the same.

    Raises:
        TypeError: An argument has the wrong type.
        ConfigError: The name is empty or too long, or ``maxsize`` is negative.

    """

    _kind = m.QUEUE

    def __init__(self, name: str | None = None, client: object = None, maxsize: int = 0) -> None:
        super().__init__((_read_name(name),), client, arguments.whole("maxsize", maxsize, 0))

    @property
    def maxsize(self) -> int:
        """How many values it may have, as this object says; 0: any number."""
        return self._most

    def put(self, value: object, timeout: float | None = None) -> None:
        """Add a value at the end; return when the queue has it.

        Raises:
            TimeoutError: There was no room for ``timeout`` seconds; the value is not in the queue.
            PayloadError: The value cannot be pickled, or is too large.
            QuotaExceededError: There is too much in queues and the like.

        """
        limit = _limit(True, timeout)
        if self._answer_to(self._asked(m.PUT, limit, value=_packed(value)), limit) is None:
            raise TimeoutError(f"{self!r} had no room for {timeout:g} s")

    def get(self, timeout: float | None = None, batch: bool | int = False) -> Any:
        """Remove the next value and return it, or with ``batch`` a list of values.

        Args:
            timeout: How many seconds to wait; default: as long as it takes.
            batch: True: all values that there are now, perhaps none. A number, up to 1,000: so many
                values, as soon as there are.

        Raises:
            TimeoutError: There was no value, or were not so many, for ``timeout`` seconds.
            PayloadError: A value cannot be unpickled; it was removed, and those with it.

        """
        count = 1
        if batch is True:
            count = 0
        elif batch is not False:
            count = arguments.whole("batch", batch, 1, wants="True, False or an integer")
        if count > m.VALUES_MAX:
            raise ConfigError(f"batch must be {m.VALUES_MAX} at most, not {count}")
        limit = _limit(True, timeout)
        asked = self._asked(m.TAKE, limit, count=count)
        try:
            answer = self._answer_to(asked, limit)
            if answer is not None:
                self._took(asked)
        except BaseException:
            # Ctrl-C may come between the answer and the word that the values have arrived.
            self._session.withdraw(asked)
            raise
        if answer is None:
            raise TimeoutError(f"{self!r} had too few values for {timeout:g} s")
        values = list(map(_unpacked, answer.values)) if answer.orders else []
        return values[0] if batch is False else values

    def _took(self, asked: Asked) -> None:
        """Say that the values which were asked for are here: they are gone from the queue."""
        self._session.withdraw(asked, has_values=True)

    def qsize(self) -> int:
        """Return how many values there are."""
        return self._now(m.LOOK).count

    def close(self) -> None:
        """Remove all values, and forget ``maxsize``."""
        self._now(m.CLEAR)


class Variable(_Named):
    """A value that everybody in the cluster may read and set; the last one that was set counts.

    A value is pickled, and has at most a megabyte (1 MiB) then.

    Args:
        name: What others call it; default: a name that nobody else has. A pickled copy has it too.
        client: A Client or ScalerExecutor of the cluster. Inside a task it is not needed.

    Raises:
        TypeError: An argument has the wrong type.
        ConfigError: The name is empty or longer than 255 characters.

    """

    _kind = m.VARIABLE

    def __init__(self, name: str | None = None, client: object = None) -> None:
        super().__init__((_read_name(name),), client)

    def set(self, value: object, timeout: float | None = None) -> None:
        """Let the variable have this value; everybody who waits in :meth:`get` gets it.

        Raises:
            TimeoutError: The scheduler did not answer in ``timeout`` seconds.
            PayloadError: The value cannot be pickled, or is too large.
            QuotaExceededError: There is too much in variables and the like.

        """
        self._now(m.SET, _packed(value), _limit(True, timeout))

    def get(self, timeout: float | None = None) -> Any:
        """Return the value; wait until there is one.

        Raises:
            TimeoutError: There was none for ``timeout`` seconds.
            PayloadError: The value cannot be unpickled.

        """
        limit = _limit(True, timeout)
        answer = self._answer_to(self._asked(m.GET, limit), limit)
        if answer is None:
            raise TimeoutError(f"{self!r} had no value for {timeout:g} s")
        (value,) = answer.values
        return _unpacked(value)

    def delete(self) -> None:
        """Remove the value: :meth:`get` waits until there is another one."""
        self._now(m.CLEAR)


def _session_of(client: object) -> Session:
    session = getattr(client, "_session", None)
    if not isinstance(session, Session):
        raise TypeError(f"client must be a Client or a ScalerExecutor, not {shown(client)}")
    return session


def _read_name(name: object) -> str:
    if name is None:
        return uuid.uuid4().hex
    if not isinstance(name, str):
        raise TypeError(f"name must be a text, not {shown(name)}")
    if not 0 < len(name) <= NAME_CHARS_MAX:
        raise ConfigError(f"name must have 1 to {NAME_CHARS_MAX} characters, not {len(name)}")
    return name


def _limit(blocking: object, timeout: object) -> float | None:
    """Return how many seconds to wait; None: as long as it takes."""
    if not arguments.flag("blocking", blocking):
        return 0.0
    return None if timeout is None else arguments.seconds("timeout", timeout, any_sign=True)


def _packed(value: object) -> bytes:
    data = payload.dumps(value)
    if len(data) > m.VALUE_BYTES_MAX:
        raise PayloadError(
            f"a value of {len(data)} pickled bytes: queues and variables take {m.VALUE_BYTES_MAX} "
            "at most; store it with send_object() of the client, or pass it as an argument"
        )
    return data


def _unpacked(data: Buffer) -> Any:
    try:
        return payload.load_parts(data)
    except INTERRUPTS:
        raise
    except BaseException as error:
        raise PayloadError(f"cannot unpickle a value: {error!r}") from error
