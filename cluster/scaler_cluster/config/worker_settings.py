"""Every setting of workers, whoever starts them: a command on this machine, or a manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from scaler_cluster.config.option import option
from scaler_cluster.config.shared_settings import Logging, Secured
from scaler_cluster.config.values import (
    CAPABILITIES,
    CONNECT,
    FLAG,
    NAMES,
    PRELOAD,
    STORAGES,
    TEXT,
    choice,
    nbytes,
    seconds,
    whole,
)
from scaler_cluster.errors import ConfigError
from scaler_cluster.wire.messages import DEVICES_MAX, GPU

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler_cluster.wire.messages import Capabilities

LOOPS = ("builtin", "uvloop")
MEMORY_LIMIT_MIN = 32 << 20
"""A worker that has done nothing yet takes 20 to 22 MB on Linux, with Python 3.10 to 3.13."""


@dataclass(frozen=True, kw_only=True)
class WorkerSettings(Secured, Logging):
    """Of workers, however many there are and wherever they run."""

    scheduler_address: str = option(
        "where the scheduler listens, such as tcp://127.0.0.1:8516", CONNECT, is_positional=True
    )
    per_worker_capabilities: Mapping[str, float] = option(
        "what each worker offers, such as linux,gpu=1; a name without a number is never used up",
        CAPABILITIES,
        "-pwc",
        default={},
    )
    machine_capabilities: Mapping[str, float] = option(
        "what the workers of a machine share, such as gpu=4; each task is told which GPUs are its "
        "own",
        CAPABILITIES,
        "-mc",
        default={},
    )
    per_worker_task_queue_size: int = option(
        "how many tasks a worker may hold at most",
        whole(1),
        "-wtqs",
        default=1000,
        also=("worker_task_queue_size",),
    )
    heartbeat_interval_seconds: float = option(
        "how often to tell the scheduler that this machine is alive",
        seconds(),
        "-his",
        "-hi",
        default=2,
        also=("heartbeat_interval",),
    )
    task_timeout_seconds: float = option(
        "stop a task that runs longer and has no timeout of its own; 0: no limit",
        seconds(zero=True),
        "-tts",
        "-tt",
        default=0,
    )
    stopped_timeout_seconds: float = option(
        "replace a worker whose process was stopped (SIGSTOP) for this time; 0: never",
        seconds(zero=True),
        "-sts",
        default=30,
    )
    hang_timeout_seconds: float = option(
        "replace a worker whose task and its processes used no CPU time for this time, also if it "
        "sleeps or waits on purpose; 0: never",
        seconds(zero=True),
        "-hts",
        default=0,
    )
    death_timeout_seconds: float = option(
        "end when the scheduler has been silent for this time",
        seconds(),
        "-dts",
        "-dt",
        "-ds",
        default=300,
    )
    garbage_collect_interval_seconds: float = option(
        "how often a worker collects garbage between tasks; 0: never",
        seconds(zero=True),
        "-gc",
        default=30,
    )
    trim_memory_threshold_bytes: int = option(
        "a worker that uses more memory than this, such as 1GiB, returns free memory to the system "
        "after collecting garbage",
        nbytes(0),
        "-tm",
        default=1 << 30,
    )
    memory_limit: int = option(
        "replace a worker that uses more memory than this, such as 4GB; 0: no limit",
        nbytes(0),
        default=0,
    )
    max_tasks_per_child: int = option(
        "replace a worker by a new process after so many tasks; 0: never",
        whole(0),
        default=0,
    )
    failed_arguments: bool = option(
        "tell all who watch what the arguments of tasks that raise look like, in 200 characters, "
        "whatever secrets are in them",
        FLAG,
        default=False,
    )
    hard_processor_suspend: bool = option(
        "accepted, without effect: if a task waits for others, a spare worker takes the place of "
        "its worker",
        FLAG,
        "-hps",
        default=False,
    )
    preload: str | None = option(
        "what each worker calls before its first task, such as pkg.mod:func(1, name='a')",
        PRELOAD,
        default=None,
    )
    object_storage_address: tuple[str, ...] = option(
        "accepted, without effect: the scheduler tells workers where objects are stored",
        STORAGES,
        "-osa",
        default=(),
    )
    event_loop: str = option(
        "accepted, without effect: a worker has no event loop",
        choice(*LOOPS),
        "-el",
        "-e",
        default="builtin",
    )
    threads_per_worker: int = option(
        "how many threads numeric libraries start in each worker; variables such as "
        "OMP_NUM_THREADS, if set, win",
        whole(1),
        "-tpw",
        default=1,
    )
    io_threads: int = option(
        "how many threads of each worker send and receive bytes over TCP",
        whole(1),
        "-it",
        "-wit",
        default=1,
        also=("worker_io_threads",),
    )

    def __post_init__(self) -> None:
        """Raise ConfigError if the settings contradict each other."""
        own, shared = self.per_worker_capabilities, self.machine_capabilities
        if both := sorted(own.keys() & shared.keys()):
            raise ConfigError(
                f"{both[0]!r} is in per_worker_capabilities and in machine_capabilities: either "
                "each worker has so much of it, or all workers of a machine together"
            )
        if 0 < self.memory_limit < MEMORY_LIMIT_MIN:
            raise ConfigError(
                "memory_limit must be 32 MiB or more, as a worker that does nothing takes most of "
                f"that, not {self.memory_limit}"
            )
        gpus = shared.get(GPU, 0)
        if not 0 <= gpus <= DEVICES_MAX or gpus != int(gpus):
            raise ConfigError(
                f"machine_capabilities must have a whole number of GPUs, {DEVICES_MAX} at most, "
                f"not {GPU}={gpus:g}"
            )

    @property
    def offered_by_worker(self) -> Capabilities:
        """What each worker offers, whatever the others use."""
        endless = {name: n for name, n in self.machine_capabilities.items() if n < 0}
        return tuple(sorted({**self.per_worker_capabilities, **endless}.items()))

    @property
    def offered_by_machine(self) -> Capabilities:
        """What the workers of a machine share."""
        return tuple(sorted((name, n) for name, n in self.machine_capabilities.items() if n >= 0))

    @property
    def offered(self) -> Capabilities:
        """What a task may demand of these workers."""
        return tuple(sorted(self.offered_by_worker + self.offered_by_machine))


@dataclass(frozen=True, kw_only=True)
class ClusterSettings(WorkerSettings):
    """Of a cluster: the workers of one machine."""

    names: ClassVar[tuple[str, ...]] = ("cluster", "worker")

    num_of_workers: int | None = option(
        "the number of workers (default: one for each CPU but one)",
        whole(1),
        "-n",
        "-mtc",
        default=None,
        also=("max_task_concurrency",),
    )
    worker_names: tuple[str, ...] = option(
        "the names of the workers, one for each", NAMES, "-wn", default=()
    )
    worker_manager_id: str | None = option(
        "the manager that has these workers started, as it tells them", TEXT, "-wmi", default=None
    )
    unit: str | None = option("what the manager calls these workers together", TEXT, default=None)
