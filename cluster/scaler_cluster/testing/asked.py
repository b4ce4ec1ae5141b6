"""What was asked of a simulated cluster, and how it may come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.deaths import LOSSES_MAX
from scaler_cluster.testing.programs import Expected, evaluate
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.testing.tasks import Task
    from scaler_cluster.testing.world import World


@dataclass(slots=True)
class Asked:
    """A task that was asked for."""

    expected: Expected
    names: frozenset[bytes]
    """Tasks whose end may be its own."""
    options: tuple[m.TaskOptions, ...]
    """Its own first, then those of its inputs."""
    inputs: tuple[int, ...] = ()
    """Tasks that it takes the results of."""
    beside: tuple[m.TaskOptions, ...] = ()
    """Those of all nodes of its graph, and of the graphs of its inputs."""

    @classmethod
    def of(cls, task: Task, options: m.TaskOptions) -> Asked:
        """Return one that takes no results of others."""
        return cls(evaluate(task), frozenset((task.name,)), (options,))

    def check_failure(
        self, task: int, failure: m.Failed, world: World, *, was_forgotten: bool
    ) -> None:
        """Check that the task may have failed so, given what has happened in the world.

        Its client may have been forgotten by the scheduler.
        """
        kind = failure.kind
        if kind == m.FAILED_EXCEPTION:
            error = bytes(failure.payload)
            is_expected = isinstance(self.expected, frozenset) and error in self.expected
            is_disturbed = error in world.disturbed and error[1:] in self.names
            assert is_expected or is_disturbed, f"{task} raised {error!r}, not {self.expected!r}"
        elif kind == m.FAILED_WORKER_DIED:
            assert world.died & self.names, f"{task} did not kill its worker"
        elif kind == m.FAILED_TIMEOUT:
            assert any(one.timeout_s for one in self.options), f"{task} has no timeout"
        elif kind == m.FAILED_ACTOR:
            # Its actor is gone: workers, machines and clients go, and some cannot be made.
            assert self.options[0].actor or self.options[0].creates, f"{task} has no actor"
        elif kind == m.FAILED_LOST:
            options = self.options + (self.beside if was_forgotten else ())
            is_once = any(one.at_most_once for one in options)
            is_lost = world.machines_lost > LOSSES_MAX
            assert is_once or is_lost, f"{task} was not lost so often"
        else:
            assert kind == m.FAILED_MISSING, f"{task} failed by {kind}"
            # A storage that is stopped for longer than a transfer waits counts as gone.
            assert world.machines_lost or world.plan.stops, f"{task}: {failure.detail}"
