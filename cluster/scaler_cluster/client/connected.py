"""What every client has, whatever it submits: the way to its cluster, and the way out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster import arguments
from scaler_cluster.client import worker_context
from scaler_cluster.client.views import Viewed
from scaler_cluster.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from scaler_cluster.client.call_options import CallOptions
    from scaler_cluster.client.client_settings import ClientSettings
    from scaler_cluster.client.profile import Profile, RunningTask
    from scaler_cluster.client.serializer import Serialization
    from scaler_cluster.client.session import Session
    from scaler_cluster.process.dashboard_link import DashboardLink


class ConnectedClient(Viewed):
    """A client with a session, which another client of the same process may share as a view.

    One that was unpickled connects when it is first used.
    """

    def _connect(self, settings: ClientSettings, asked: CallOptions, address: str | None) -> None:
        """Become the client that has these settings; raises as :class:`Client` does."""
        self._take(settings, asked)
        self._session = self._open(address, "")
        self._identity = self._session.new_identity()
        self._address = self._session.address
        self._cluster = self._session.connection.welcome.homes[0].disk

    def _take(self, settings: ClientSettings, asked: CallOptions) -> None:
        self._take_options(asked)
        self._settings = settings
        self._serialization: Serialization | None = None
        serializer = settings.serializer
        if serializer is not None:
            from scaler_cluster.client.serializer import DefaultSerializer, Serialization

            if not (serializer is DefaultSerializer or type(serializer) is DefaultSerializer):
                self._serialization = Serialization(serializer)

    def _open(self, address: str | None, cluster: str) -> Session:
        """Return the session of this worker's tasks if it leads to the cluster, else a new one."""
        nested = worker_context.nested_session(address, cluster)
        if nested is not None:
            nested.check_in_task()
            return nested
        if address is None:
            raise ConfigError(
                "No scheduler address provided, and not running inside a worker context: "
                "Client(address=...) needs one, except inside of a task"
            )
        # It brings the transport along: who only imports the package does not wait for that.
        from scaler_cluster.client.session import Session

        settings = self._settings
        return Session(
            address,
            timeout=settings.timeout_s,
            silence_s=settings.reconnect_timeout_s,
            heartbeat_s=min(settings.heartbeat_s, settings.reconnect_timeout_s / 2),
            storages=settings.storages,
            credentials=settings.credentials,
        )

    @property
    def identity(self) -> bytes:
        """An id that no other client has."""
        return self._identity

    @property
    def monitor_address(self) -> str:
        """The address for monitors, such as ``scaler_top``; empty: the scheduler has none."""
        return self._session.monitor_address

    @property
    def dashboard_link(self) -> DashboardLink | None:
        """The link that opens the cluster's dashboard; None: the cluster has none."""
        return self._session.dashboard_link

    def profile(self, seconds: float = 10.0, function: str | None = None) -> Profile:
        """Sample what the tasks of the cluster do, and return where their time goes.

        Each worker looks at the stack of its task about fifty times a second meanwhile; before
        and afterwards it does nothing of that. Tasks of all clients are seen. Print the profile,
        or see :meth:`~scaler_cluster.client.profile.Profile.top` and ``save("x.speedscope.json")``.

        Args:
            seconds: How long to look; it takes up to a second longer.
            function: The name of a function that tasks call: only its tasks count.

        Raises:
            ConfigError: ``seconds`` is not positive, or the scheduler has no monitor address, or
                does not let this client look.
            ClusterUnreachableError: The scheduler cannot be reached, or no longer.

        """
        from scaler_cluster.client.profile import take_profile

        seconds = arguments.seconds("seconds", seconds)
        credentials = self._session.connection.credentials
        return take_profile(self.monitor_address, credentials, seconds, function)

    def stacks(self) -> list[RunningTask]:
        """Return each task of the cluster that runs now, and what it is at: its stack as text.

        Print one for a traceback of it. The one that has been running the longest comes first. A
        task whose code holds the interpreter, so that its worker cannot answer within half a
        second, has no stack but a ``reason``. Raises as :meth:`profile`.
        """
        from scaler_cluster.client.profile import take_stacks

        return take_stacks(self.monitor_address, self._session.connection.credentials)

    def clear(self) -> None:
        """Cancel all tasks that are pending, and drop all stored objects; the client can go on."""
        self._session.give_up()
        self._session.clear_objects()

    def disconnect(self) -> None:
        """Cancel all tasks that are pending, and leave the cluster; idempotent."""
        self._session.close("the client was disconnected", abandon=True)

    def shutdown(self) -> None:
        """Cancel all tasks that are pending, and end the cluster; idempotent.

        This ends the scheduler, all workers and the object storages. Raises ConfigError if the
        scheduler is protected from this; the client is disconnected all the same.
        """
        session = self._session
        try:
            if session.is_open:
                session.give_up()
                session.shut_down()
        finally:
            self.disconnect()

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnect."""
        self.disconnect()

    def __repr__(self) -> str:
        """Show whether it takes tasks, and of which scheduler; one that was unpickled may wait."""
        session = self.__dict__.get("_session")
        state = "not connected yet" if session is None else session.state
        return f"<{type(self).__name__} {state}, address={self.__dict__.get('_address')}>"

    def __reduce__(self) -> Any:
        """Become a client of the same cluster, where it is unpickled."""
        return _revive, (type(self), self._address, self._cluster, self._settings, self._asked)

    def __getattr__(self, name: str) -> Any:
        """Connect when a client that was unpickled is first used."""
        if name not in {"_session", "_identity"} or "_address" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._session = self._open(self._address, self._cluster)
        self._identity = self._session.new_identity()
        return self.__dict__[name]

    def __del__(self) -> None:
        """Disconnect, without waiting for it."""
        if "_session" in self.__dict__ and self._original is None:
            self._session.close("the client was deleted", abandon=True, wait=False)


def _revive(
    kind: type[ConnectedClient],
    address: str,
    cluster: str,
    settings: ClientSettings,
    asked: CallOptions,
) -> ConnectedClient:
    client = object.__new__(kind)
    client._take(settings, asked)
    client._address = address
    client._cluster = cluster
    return client
