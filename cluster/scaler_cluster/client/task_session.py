"""What the tasks of a worker submit tasks through."""

from __future__ import annotations

from abc import abstractmethod

from scaler_cluster.client.session import Session


class TaskSession(Session):
    """The session through which the tasks of a worker submit tasks."""

    @property
    @abstractmethod
    def cluster_name(self) -> str:
        """What is different in each cluster: the directory of its objects."""

    @abstractmethod
    def check_in_task(self) -> None:
        """Raise ConfigError outside of tasks."""

    @abstractmethod
    def set_seceded(self, *, seceded: bool) -> None:
        """The task in which this is called leaves its worker's place to others, or returns."""
