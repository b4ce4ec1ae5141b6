"""A worker's process: what it does from its fork to its end."""

from __future__ import annotations

import faulthandler
import io
import math
import multiprocessing
import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from scaler_cluster.client import worker_context
from scaler_cluster.client.present_workers import WorkerInfo
from scaler_cluster.core.worker.slot import SLOT_READY
from scaler_cluster.core.worker.worker import WorkerCore
from scaler_cluster.links.open_link import connect
from scaler_cluster.objects.worker_store import WorkerStore
from scaler_cluster.pickling import payload as payloads
from scaler_cluster.preload import parse_preload
from scaler_cluster.process.log_config import set_up_logging
from scaler_cluster.process.process import PYTHON_VERSION
from scaler_cluster.runtime import forkserver, pools, worker_code
from scaler_cluster.runtime.failed_arguments import FailedArguments
from scaler_cluster.runtime.memory_maintenance import MemoryMaintenance
from scaler_cluster.runtime.task_environment import TaskEnvironment
from scaler_cluster.runtime.worker import WorkerShell
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.objects.storage_dirs import StorageDirs
    from scaler_cluster.process.process_config import SupervisorProcessConfig
    from scaler_cluster.runtime.forkserver import WorkerOrder
    from scaler_cluster.runtime.worker_slots import WorkerSlots

INITIALIZER_EXIT_CODE = 66
"""A worker exits with this when its initializer raised."""


class WorkerProcess:
    """Is called in each worker after its fork, with the supervisor's order; returns its exit code.

    ``supervisor`` is the supervisor's peer id, ``host`` the name of the machine.
    """

    def __init__(
        self, config: SupervisorProcessConfig, slots: WorkerSlots, supervisor: bytes, host: str
    ) -> None:
        self._config = config
        self._slots = slots
        self._supervisor = supervisor
        self._host = host
        # This is the supervisor's process still, whose environment nobody changes.
        self._environment = TaskEnvironment(os.environ, config.options.threads_per_worker)

    def __call__(self, order: WorkerOrder) -> int:
        """Run a worker to its end."""
        config = self._config
        self._become_process(order)
        try:
            self._initialize()
        except BaseException:
            self._slots.keep_trace(order.slot, traceback.format_exc())
            return INITIALIZER_EXIT_CODE
        if not config.inherited:
            self._work(order)
            return 0
        from scaler_cluster.process.inheritance import finish

        # Not before: a worker that is still starting has nothing to finish.
        signal.signal(signal.SIGTERM, finish)
        self._work(order)
        finish()
        return 0

    def _become_process(self, order: WorkerOrder) -> None:
        """Be one of a pool's processes, as ``multiprocessing`` knows them, and no program's own.

        What tasks start shall not run this program's ``__main__`` again; and ``__main__`` is the
        module from which functions and classes come that travel by value.
        """
        config = self._config
        if config.options.logging is not None:
            set_up_logging(config.options.logging, suffix=f"-{os.getpid()}")
        faulthandler.enable()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        sys.modules["__main__"] = ModuleType("__main__")
        process = multiprocessing.current_process()
        forkserver.name_semaphores()
        process.name = f"Worker-{config.name_of(order.slot) or order.slot}"
        if config.authkey:
            process.authkey = config.authkey
        sys.path[:] = config.sys_path

    def _initialize(self) -> None:
        """Call what a worker is to call before its first task."""
        config = self._config
        if config.initializer:
            pools.call_initializer(*payloads.loads(config.initializer))
        if config.options.preload:
            parse_preload(config.options.preload).run()

    def _work(self, order: WorkerOrder) -> None:
        """Connect to the scheduler, and run its tasks until it lets this worker go."""
        config, options = self._config, self._config.options
        hello = m.Hello(
            m.WORKER,
            m.PROTOCOL_VERSION,
            PYTHON_VERSION,
            os.getpid(),
            self._host,
            self._supervisor,
            options.max_tasks_per_child,
            place=order.storage.dirs.served_at(order.storage.address),
            spare=order.slot >= config.places,
            name=config.name_of(order.slot),
            capabilities=options.capabilities,
            queue=options.queue,
        )
        keys = options.credentials
        passport = keys.passport(config.address)
        link = connect(config.address, order.peer, passport, options.io_threads)
        slot = self._slots.of(order.slot)
        slot[SLOT_READY] = 1
        if options.failed_arguments:
            FailedArguments.active = FailedArguments()
        core = WorkerCore()
        core.on_tail_logs = partial(_tail_logs, core)
        worker_context.leave = partial(setattr, core, "leave", "")
        dirs, is_home = order.storage.dirs, order.storage.is_home
        worker_context.keep_code = worker_code.keep
        core.kept.limit_bytes = kept_max = self._kept_max(dirs, order.workers)
        store = WorkerStore(order.peer, dirs, core.mapped, core.missing, is_home=is_home)
        maintenance = MemoryMaintenance(
            options.collect_interval_s, options.trim_above_bytes, kept_max
        )
        reach = config.address, keys
        shell = WorkerShell(
            link, core, slot, store, hello, *reach, order.peer, maintenance, self._environment
        )
        worker_context.name = hello.name or f"{hello.host}/{hello.pid}"
        worker_code.worker = WorkerInfo(worker_context.name, *shell.process[::-1])
        worker_code.home = str(Path(dirs.disk).parent) if dirs.disk else ""
        shell.run()
        worker_code.close()
        link.close()

    def _kept_max(self, dirs: StorageDirs, workers: int) -> float:
        """Return how much may live in this worker of what nodes return.

        What lives in the workers of a machine has its room among the objects in shared memory: an
        equal part of that is for each worker, and at most half of what the worker may use.
        """
        limits = [dirs.memory_limit / max(workers, 1)] if dirs.memory else []
        if self._config.options.memory_limit_bytes:
            limits.append(self._config.options.memory_limit_bytes / 2)
        # Without a directory nothing can be written out.
        return min(limits, default=math.inf) if dirs.disk else math.inf


def _tail_logs(core: WorkerCore, question: m.TailLogs) -> None:
    """Let a worker say what its tasks print, as somebody asks for the first time."""
    # Most workers are never asked, and need no such import.
    from scaler_cluster.runtime.log_tail import LogTail

    tail = LogTail(core)
    core.on_tail_logs, core.on_leave = tail.ask, tail.answer
    tail.ask(question)
