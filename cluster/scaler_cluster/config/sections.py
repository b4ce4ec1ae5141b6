"""Every setting there is, by what it is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scaler_cluster.config.option import Section, option
from scaler_cluster.config.quota_settings import ClientQuotas
from scaler_cluster.config.scaling_policy import (
    ELASTIC,
    ENGINES,
    NO,
    VANILLA,
    ScalingPolicy,
    read_policy,
)
from scaler_cluster.config.shared_settings import LEVELS, Encrypted, Logging, Secured
from scaler_cluster.config.values import (
    CONNECT,
    FILE,
    FLAG,
    HOST,
    HOST_AND_PORT,
    LISTEN,
    NAMES,
    PORT,
    PREFIX,
    STORAGES,
    TEXT,
    TOKEN,
    URLS,
    choice,
    nbytes,
    seconds,
    whole,
)
from scaler_cluster.config.worker_settings import LOOPS, ClusterSettings
from scaler_cluster.errors import ConfigError

STRATEGIES = {"NULL": NO, "VANILLA": VANILLA, "FIXED_ELASTIC": ELASTIC}
"""What the strategies of version 1.12 are called elsewhere."""


def webhook_manager_id(number: int) -> str:
    """Return the id of the manager that a scheduler has for its adapter of this number, from 1."""
    return f"webhook-{number}"


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings(ClientQuotas, Secured, Logging):
    """Of a scheduler."""

    names: ClassVar[tuple[str, ...]] = ("scheduler",)

    scheduler_address: str = option(
        "where clients and clusters connect, such as tcp://127.0.0.1:8516; port 0: any free port",
        LISTEN,
        also=("bind_address",),
        is_positional=True,
    )
    object_storage_address: tuple[str, ...] = option(
        "the storage of large objects; if none listens there, the scheduler starts one "
        "(default: the next port)",
        STORAGES,
        "-osa",
        default=(),
    )
    advertised_object_storage_address: tuple[str, ...] = option(
        "the address by which other machines reach the object storage, if it is another one",
        STORAGES,
        "-aosa",
        default=(),
    )
    monitor_address: str | None = option(
        "where monitors connect (default: the port after the storage's)",
        LISTEN,
        "-ma",
        default=None,
    )
    status_report_interval_seconds: float = option(
        "how often the scheduler publishes its state to monitors", seconds(), "-sri", default=1
    )
    object_report_limit: int = option(
        "how many of the largest objects the scheduler publishes to monitors",
        whole(0),
        "-orl",
        default=500,
    )
    hide_logs: bool = option("tell no monitor what tasks print and log", FLAG, "-hl", default=False)
    protected: bool = option("do not let clients shut the cluster down", FLAG, "-p", default=False)
    max_number_of_tasks_waiting: int = option(
        "how many tasks may wait in the scheduler; more wait in their clients; -1: no limit",
        whole(1, unset=-1),
        "-mt",
        default=-1,
    )
    client_timeout_seconds: float = option(
        "give up a client that is silent for this time, and cancel its tasks",
        seconds(),
        "-ct",
        default=60,
    )
    worker_timeout_seconds: float = option(
        "give up a cluster that is silent for this time, and run its tasks elsewhere",
        seconds(),
        "-wt",
        default=60,
    )
    per_worker_task_queue_size: int | None = option(
        "how many tasks a worker may hold at most, whatever its cluster allows",
        whole(1),
        "-qs",
        default=None,
        also=("per_worker_queue_size",),
    )
    unplaced_timeout_seconds: float = option(
        "how long a task waits if no worker has what it requires; 0: without limit",
        seconds(zero=True),
        "-ut",
        default=0,
    )
    object_retention_seconds: float = option(
        "how long a machine keeps its copy of an object that no task there uses (up to twice "
        "as long); 0: as long as there is room",
        seconds(zero=True),
        "-ot",
        default=60,
    )
    load_balance_seconds: float = option(
        "a worker gets tasks that are queued on other workers when it has been idle for this time, "
        "multiplied by load_balance_trigger_times; 0: at once; negative: never",
        seconds(zero=True, negative=True),
        "-ls",
        default=0,
    )
    load_balance_trigger_times: int = option(
        "the factor for load_balance_seconds", whole(1), "-lbt", default=2
    )
    allocate_policy: str = option(
        "all do the same: the least busy worker that has what a task requires gets the task",
        choice("even", "even_load", "capability"),
        "-ap",
        default="even",
    )
    policy_engine_type: str = option(
        "simple: policy_content has allocate= and scaling=; waterfall_v1: it has a line for each "
        "manager", choice(*ENGINES), "-et", default="simple",
    )  # fmt: skip
    policy_content: str = option(
        "how many workers managers start: scaling=adaptive, vanilla, capability, fixed_elastic, "
        "static[:N] or no; allocate= means --allocate-policy",
        TEXT,
        "-pc",
        default="allocate=even_load; scaling=adaptive",
    )
    scaling_controller_strategy: str | None = option(
        "how many groups the adapters start (default: VANILLA, if there are any): NULL: none",
        choice("NULL", "VANILLA", "FIXED_ELASTIC"),
        "-scs",
        default=None,
    )
    adapter_webhook_urls: tuple[str, ...] = option(
        "the adapters that start workers; of FIXED_ELASTIC, the first has one group at most",
        URLS,
        "-awu",
        default=(),
        also=("adapter_webhook_url",),
    )
    event_loop: str = option(
        "which event loop to use", choice(*LOOPS), "-el", "-e", default="builtin"
    )
    io_threads: int = option(
        "how many threads of the scheduler send and receive bytes over TCP",
        whole(1),
        "-it",
        default=1,
    )

    def __post_init__(self) -> None:
        """Raise ConfigError if the policy is none."""
        _ = self.scaling

    @property
    def scaling(self) -> ScalingPolicy:
        """How many workers managers are to have; raises ConfigError."""
        strategy = self.scaling_controller_strategy or (
            "VANILLA" if self.adapter_webhook_urls else ""
        )
        if strategy in STRATEGIES:
            return ScalingPolicy(STRATEGIES[strategy], primary=webhook_manager_id(1))
        try:
            return read_policy(self.policy_engine_type, self.policy_content)
        except ValueError as error:
            raise ConfigError(f"policy_content {error}") from None


@dataclass(frozen=True, kw_only=True)
class StorageSettings(Secured, Logging):
    """Of an object storage that runs by itself."""

    names: ClassVar[tuple[str, ...]] = ("object_storage_server",)

    object_storage_address: str = option(
        "where to listen, such as tcp://127.0.0.1:8517",
        LISTEN,
        also=("bind_address",),
        is_positional=True,
    )
    memory_limit: int | None = option(
        "shared memory for objects, such as 8GB; more go to disk (default: 80 %% of /dev/shm)",
        nbytes(1),
        default=None,
    )
    identity: str = option("accepted, without effect", TEXT, default="ObjectStorageServer")


@dataclass(frozen=True, kw_only=True)
class TopSettings(Secured):
    """Of the monitor for terminals."""

    names: ClassVar[tuple[str, ...]] = ("top",)

    monitor_address: str = option(
        "the monitor address that the scheduler printed", CONNECT, is_positional=True
    )
    timeout: float = option(
        "end when the scheduler is silent for this time", seconds(), "-t", default=5
    )
    once: bool = option("print everything once and end", FLAG, default=False)
    json: bool = option("print everything once, as JSON, and end", FLAG, default=False)


@dataclass(frozen=True, kw_only=True)
class MetricsSettings(Secured, Encrypted):
    """Of what tells Prometheus how a cluster is."""

    names: ClassVar[tuple[str, ...]] = ("metrics",)

    monitor_address: str = option(
        "the monitor address that the scheduler printed", CONNECT, is_positional=True
    )
    address: str = option("host name or address to listen on, or 0.0.0.0 for all",
                          TEXT, default="127.0.0.1")  # fmt: skip
    port: int = option("port to listen on; 0: any free port", PORT, "-p", default=9518)
    token: str | None = option(
        "what Prometheus must show; better in SCALER_METRICS_TOKEN, which other users cannot see "
        "(default: nothing)",
        TOKEN,
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class RecordSettings(Secured):
    """Of what writes the feed to a file."""

    names: ClassVar[tuple[str, ...]] = ("record",)

    monitor_address: str = option(
        "the monitor address that the scheduler printed", CONNECT, is_positional=True
    )
    file: str = option(
        "the file to write; an existing file is overwritten", FILE, is_positional=True
    )
    logs: bool = option("also write what tasks print and log", FLAG, default=False)
    profile: bool = option(
        "also have tasks sampled: scaler_report then shows where their time went",
        FLAG,
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class LogsSettings(Secured):
    """Of what shows in a terminal what tasks print and log."""

    names: ClassVar[tuple[str, ...]] = ("logs",)

    monitor_address: str | None = option(
        "the monitor address that the scheduler printed; none with --replay",
        CONNECT,
        default=None,
        is_positional=True,
    )
    follow: bool = option(
        "go on until Ctrl-C, also while there is no scheduler", FLAG, "-f", default=False
    )
    seconds: float = option("without --follow: end after this time", seconds(), default=10)
    worker: str | None = option(
        "only of workers that have this in their name, process id or host", TEXT, "-w", default=None
    )
    function: str | None = option(
        "only of tasks that have this in the name of their function", TEXT, default=None
    )
    task: str | None = option(
        "only of this task, as lines name it, such as 3:17", TEXT, default=None
    )
    level: str | None = option(
        "only log records of this level or above, and nothing that is printed",
        choice(*LEVELS),
        "-l",
        default=None,
    )
    grep: str | None = option(
        "only lines in which this regular expression is found", TEXT, "-g", default=None
    )
    replay: str | None = option(
        "the lines of a file that scaler_record --logs wrote, instead of a cluster's",
        FILE,
        default=None,
    )

    def __post_init__(self) -> None:
        """Raise ConfigError unless there is one thing to show."""
        if (self.monitor_address is None) == (self.replay is None):
            raise ConfigError("give one of monitor_address and replay")


@dataclass(frozen=True, kw_only=True)
class ProfileSettings(Secured):
    """Of what tells where the time of tasks goes."""

    names: ClassVar[tuple[str, ...]] = ("profile",)

    monitor_address: str = option(
        "the monitor address that the scheduler printed", CONNECT, is_positional=True
    )
    file: str | None = option(
        "also write a file for https://www.speedscope.app, such as x.speedscope.json",
        FILE,
        default=None,
        is_positional=True,
    )
    seconds: float = option("for how long to look", seconds(), "-s", default=10)
    function: str | None = option(
        "the name of a function that tasks call: only its tasks count", TEXT, default=None
    )
    stacks: bool = option(
        "print the stack of each task that runs now, and end", FLAG, default=False
    )

    def __post_init__(self) -> None:
        """Raise ConfigError unless what is given goes together."""
        super().__post_init__()
        if self.stacks and self.file is not None:
            raise ConfigError("stacks are printed: no file goes with them")


@dataclass(frozen=True, kw_only=True)
class TraceSettings(Section):
    """Of what makes a trace of a recording."""

    names: ClassVar[tuple[str, ...]] = ("trace",)

    file: str = option("a file that scaler_record wrote", FILE, is_positional=True)
    output: str | None = option(
        "the trace to write (default: FILE.json)", FILE, default=None, is_positional=True
    )


@dataclass(frozen=True, kw_only=True)
class ReportSettings(Section):
    """Of what makes a page of a recording."""

    names: ClassVar[tuple[str, ...]] = ("report",)

    file: str = option("a file that scaler_record wrote", FILE, is_positional=True)
    output: str | None = option(
        "the page to write (default: FILE.html)", FILE, default=None, is_positional=True
    )
    base: str | None = option(
        "a recording of another run, with which to compare it", FILE, "-b", default=None
    )


@dataclass(frozen=True, kw_only=True)
class WebSettings(Secured, Encrypted, Logging):
    """Of the monitor for browsers."""

    names: ClassVar[tuple[str, ...]] = ("webui", "gui")

    monitor_address: str | None = option(
        "the monitor address that the scheduler printed; none with --replay",
        CONNECT,
        default=None,
        is_positional=True,
    )
    address: str | None = option(
        "host name or address to listen on, or 0.0.0.0 for all (default: 127.0.0.1)",
        HOST,
        default=None,
        also=("web_host", "host"),
    )
    port: int | None = option(
        "port to listen on; 0: any free port (default: 8081)",
        PORT,
        "-p",
        default=None,
        also=("web_port",),
    )
    gui_address: str | None = option(
        "address and port together, as host:port; used where these are not given",
        HOST_AND_PORT,
        default=None,
    )
    prefix: str = option(
        "the beginning of each page's path behind a proxy, such as /scaler", PREFIX, default=""
    )
    hosts: tuple[str, ...] = option(
        "further host names by which browsers may open it, such as a proxy's; IP addresses and "
        "this machine's names are always allowed",
        NAMES,
        default=(),
    )
    token: str | None = option(
        "the secret in the link, which a browser must know; better in SCALER_DASHBOARD_TOKEN, "
        "which other users cannot see (default: a new one each time)",
        TOKEN,
        default=None,
    )
    operator_keys: str | None = option(
        "file of an operator's key, with which those may act who have a second link, which is "
        "printed as well (default: nobody acts)",
        FILE,
        default=None,
    )
    record: str | None = option("also write what happens to this file", FILE, default=None)
    history: str | None = option(
        "keep what happens in this directory, and show what an earlier dashboard kept there: it is "
        "made if there is none, and is for one cluster",
        FILE,
        default=None,
    )
    history_size: int | None = option(
        "how much to keep of a history, at most; the oldest goes (default: 1GB)",
        nbytes(1 << 20),
        default=None,
    )
    replay: str | None = option(
        "show a file that scaler_record wrote, or a history, instead of a cluster",
        FILE,
        default=None,
    )
    broadcast_interval_seconds: float = option(
        "how often open pages are updated", seconds(), "-bi", default=0.5
    )
    task_log_max_size: int = option(
        "how many tasks to list at most", whole(1), "-tl", default=50_000
    )
    status_report_interval_seconds: float = option(
        "accepted, without effect: the scheduler decides how often it publishes its state",
        seconds(),
        "-sri",
        default=1,
    )

    def __post_init__(self) -> None:
        """Raise ConfigError unless there is one thing to show, and what belongs together."""
        super().__post_init__()
        if self.monitor_address is None and self.replay is None:
            raise ConfigError("nothing to show: neither monitor_address nor replay is given")
        live = self.monitor_address, self.record, self.history, self.operator_keys
        if self.replay is not None and any(live):
            raise ConfigError(
                "replay shows a recording: neither monitor_address nor record nor history nor "
                "operator_keys goes with it"
            )

        if self.history_size is not None and self.history is None:
            raise ConfigError(
                "history_size keeps nothing by itself: name a directory with history as well"
            )

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Where it is served."""
        host, _, port = (self.gui_address or "127.0.0.1:8081").rpartition(":")
        return self.address or host, int(port) if self.port is None else self.port


SECTIONS: tuple[type[Section], ...] = (
    SchedulerSettings,
    ClusterSettings,
    StorageSettings,
    TopSettings,
    MetricsSettings,
    RecordSettings,
    LogsSettings,
    TraceSettings,
    ReportSettings,
    ProfileSettings,
    WebSettings,
)
SECTION: dict[str, type[Section]] = {name: one for one in SECTIONS for name in one.names}
"""By the name of the table."""
