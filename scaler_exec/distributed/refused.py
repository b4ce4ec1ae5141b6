"""What ``distributed`` has and this does not: one table of names, each with the reason."""

from __future__ import annotations

from typing import Any, NoReturn

_RESULTS = "results lie at the client and in the object storages, never in one worker's memory"
_LOOP = "workers and the scheduler run no event loop of the user's"
_HERE = "this process has no object of a scheduler or worker: they are processes of the engine"
_WATCH = "scaler_top, the dashboard, scaler_trace and performance_report show what a cluster does"
_PLUGINS = "plugins of workers are WorkerPlugin, PipInstall and the like"
_TOPICS = "clients, workers and the scheduler exchange no events of the user's"
_CLUSTERS = "managers start workers elsewhere: see the page on managers"

REFUSED: dict[str, str] = {
    "Adaptive": "LocalCluster.adapt() takes the numbers; the policy is the scheduler's own",
    "CompatibleExecutor": "Client.get_executor() returns an executor",
    "CondaInstall": _PLUGINS,
    "InstallPlugin": _PLUGINS,
    "Nanny": _HERE,
    "NannyPlugin": _PLUGINS,
    "Reschedule": "a task that cannot go on raises, and is run again as often as retries= says",
    "SSHCluster": _CLUSTERS,
    "Scheduler": _HERE,
    "SchedulerPlugin": "the scheduler runs no code of users",
    "Security": "Client(security=...) takes the path of keys that scaler_keys made",
    "SpecCluster": _CLUSTERS,
    "Status": _HERE,
    "SubprocessCluster": "LocalCluster's workers are processes already",
    "Worker": _HERE,
    "connect": _HERE,
    "get_task_metadata": _WATCH,
    "get_task_stream": _WATCH,
    "rpc": _HERE,
    "sync": _LOOP,
    "widgets": "it draws no widgets",
    "Client.amm": _RESULTS,
    "Client.benchmark_hardware": "python -m benchmarks of the source measures a machine",
    "Client.call_stack": "the dashboard shows what each worker runs",
    "Client.dump_cluster_state": "scaler_record writes what the scheduler publishes to a file",
    "Client.get_events": _TOPICS,
    "Client.get_scheduler_logs": "the processes log where their command or configuration says",
    "Client.get_task_stream": _WATCH,
    "Client.get_worker_logs": "the processes log where their command or configuration says",
    "Client.has_what": _RESULTS,
    "Client.loop": _LOOP,
    "Client.sync": _LOOP,
    "Client.log_event": _TOPICS,
    "Client.nbytes": _RESULTS,
    "Client.normalize_collection": "futures of persisted parts stand in the collection already",
    "Client.profile": "Client.profile of scaler_exec and scaler_profile sample what tasks do",
    "Client.register_worker_callbacks": _PLUGINS,
    "Client.restart_workers": "restart() replaces all workers of a LocalCluster",
    "Client.retire_workers": "LocalCluster.scale() and managers end workers",
    "Client.run_on_scheduler": "the scheduler runs no code of users",
    "Client.story": _WATCH,
    "Client.subscribe_topic": _TOPICS,
    "Client.unregister_scheduler_plugin": "the scheduler runs no code of users",
    "Client.unsubscribe_topic": _TOPICS,
    "Client.who_has": _RESULTS,
    "Future.substitute": "a future stands in arguments as it is",
    "as_completed.condition": _LOOP,
    "Future.bind_client": "a future has its client from the beginning",
    "LocalCluster.called_from_running_loop": _LOOP,
    "LocalCluster.from_name": _CLUSTERS,
    "LocalCluster.loop": _LOOP,
    "LocalCluster.new_worker_spec": _CLUSTERS,
    "LocalCluster.scale_down": "LocalCluster.scale() takes the number",
    "LocalCluster.scale_up": "LocalCluster.scale() takes the number",
    "LocalCluster.start_worker": "LocalCluster.scale() takes the number",
    "LocalCluster.sync": _LOOP,
    "LocalCluster.get_logs": "the processes log where their command or configuration says",
    "LocalCluster.observed": "Client.scheduler_info() tells which workers there are",
    "LocalCluster.plan": "Client.scheduler_info() tells which workers there are",
    "LocalCluster.requested": "Client.scheduler_info() tells which workers there are",
}
"""By the name; that of a method or property with its class."""


class _Refused(type):
    """The class of what stands for a name: it can be imported, but neither called nor used."""

    reason: str

    def __call__(cls, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(cls.reason)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(cls.reason)


def refused(name: str) -> Any:
    """Return what stands for a name that is not served; raises KeyError if that is not known."""
    reason = f"{name} of distributed is not served here: {REFUSED[name]}"
    return _Refused(name.rpartition(".")[2], (), {"reason": reason, "__module__": __name__})


def refused_of(owner: object, kind: str, name: str) -> Any:
    """Return what stands for an attribute that is not served; raises AttributeError.

    The ``kind`` is the name of the owner's class in the table.
    """
    if f"{kind}.{name}" in REFUSED:
        return refused(f"{kind}.{name}")
    raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")


def is_refused(value: object) -> bool:
    """Return True for what stands for a name that is not served."""
    return isinstance(value, _Refused)
