"""What a task finds in the environment of its process that has GPUs to itself, or several cores."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from scaler_cluster.client import worker_context
from scaler_cluster.process.gpus import CUDA, VARIABLES, gpu_variables
from scaler_cluster.runtime.thread_limits import thread_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scaler_cluster.wire.messages import Portion


class TaskEnvironment:
    """Makes the variables of tasks, from the environment that the machine's workers start with."""

    def __init__(self, environment: Mapping[str, str], threads: int) -> None:
        self._given = {name: environment[name] for name in VARIABLES if name in environment}
        self._threads = threads
        self._limited = tuple(thread_limits(environment, threads))
        """The variables that say how many threads libraries start, and that no user has set."""

    def enter(self, portion: Portion) -> Callable[[], None]:
        """Set what a task is to find that has this; return what sets all back."""
        variables: dict[str, str] = {}
        if portion.devices:
            variables = gpu_variables(self._given, portion.devices)
            worker_context.gpus = tuple(variables[CUDA].split(","))
        if portion.cores > 1:
            variables |= dict.fromkeys(self._limited, str(portion.cores * self._threads))
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)

        def leave() -> None:
            worker_context.gpus = ()
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

        return leave
