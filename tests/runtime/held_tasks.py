"""Tasks that an operator finds running and waiting, until a test lets them go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.runtime import tasks
from tests.runtime.helpers import wait_until

if TYPE_CHECKING:
    from scaler_exec import Operator, ScalerExecutor, ScalerFuture
    from tests.runtime.helpers import Flags


def start(
    executor: ScalerExecutor, operator: Operator, flags: Flags, count: int = 1
) -> list[ScalerFuture[Any]]:
    """Submit tasks that wait for the flag ``go``; return their futures once one runs.

    The scheduler has all of them then. Each has a flag of its own to say that it runs.
    """
    futures = [
        executor.submit(tasks.hold, flags.path(f"started{number}"), flags.path("go"))
        for number in range(count)
    ]
    flags.wait("started0")
    wait_until(
        lambda: operator.cancel(function="hold", trial=True).count == count,
        "the scheduler does not have all tasks",
    )
    return futures
