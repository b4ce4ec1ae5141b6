"""Settings: one source for flags, keys of TOML and defaults; what is wrong is said in one line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.config.load import load, read_file
from scaler_cluster.config.manager_settings import ManagerSettings
from scaler_cluster.config.native_settings import NativeSettings
from scaler_cluster.config.sections import (
    SECTION,
    RecordSettings,
    SchedulerSettings,
    StorageSettings,
    TopSettings,
    TraceSettings,
    WebSettings,
)
from scaler_cluster.config.values import CAPABILITIES, read_address
from scaler_cluster.config.worker_settings import ClusterSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.logs import LOGGER, setup_logger
from scaler_cluster.preload import parse_preload

ADDRESS = "tcp://127.0.0.1:8516"
UNIFIED = """\
# As the documents of the Scaler system have it.
[scheduler]
scheduler_address = "tcp://127.0.0.1:6378"
object_storage_address = "tcp://127.0.0.1:6379"
monitor_address = "tcp://127.0.0.1:6380"
allocate_policy = "even"
logging_level = "INFO"
logging_paths = ["/dev/stdout", "/var/log/scaler/scheduler.log"]

[cluster]
scheduler_address = "tcp://127.0.0.1:6378"
num_of_workers = 8
per_worker_capabilities = "linux,cpu=8"
task_timeout_seconds = 600

[object_storage_server]
object_storage_address = "tcp://127.0.0.1:6379"

[webui]
monitor_address = "tcp://127.0.0.1:6380"
web_port = 8081
"""


@pytest.fixture
def write(tmp_path):
    """Return what writes a file and returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "some.toml"
        path.write_text(text)
        return str(path)

    return write


def scheduler(*arguments: str) -> SchedulerSettings:
    return load(SchedulerSettings, "scaler_scheduler", "", arguments)


def cluster(*arguments: str) -> ClusterSettings:
    return load(ClusterSettings, "scaler_cluster", "", arguments)


# -- where values come from --------------------------------------------------------------------


def test_defaults_are_the_documented_ones():
    """Defaults are those of both documented generations, or of the newer where they differ."""
    one, other = scheduler(ADDRESS), cluster(ADDRESS)

    assert one.scheduler_address == other.scheduler_address == ADDRESS
    assert (one.client_timeout_seconds, one.worker_timeout_seconds) == (60, 60)
    assert (one.max_number_of_tasks_waiting, one.protected, one.event_loop) == (
        -1,
        False,
        "builtin",
    )
    # Documented is 1 for the first: that would have idle workers wait for seconds.
    assert (one.load_balance_seconds, one.load_balance_trigger_times) == (0, 2)
    assert (one.logging_paths, one.logging_level) == (("/dev/stdout",), "INFO")
    assert (other.heartbeat_interval_seconds, other.death_timeout_seconds) == (2, 300)
    assert (other.task_timeout_seconds, other.garbage_collect_interval_seconds) == (0, 30)
    assert other.trim_memory_threshold_bytes == 1024**3
    assert not other.per_worker_capabilities


def test_flags_come_before_the_file_and_that_before_defaults(write):
    """A flag wins over the file, and the file wins over defaults."""
    path = write(UNIFIED)

    plain = cluster("--config", path)
    assert plain.scheduler_address == "tcp://127.0.0.1:6378"
    assert (plain.num_of_workers, plain.task_timeout_seconds) == (8, 600)
    assert plain.per_worker_capabilities == {"linux": -1, "cpu": 8}
    assert plain.death_timeout_seconds == 300

    other = cluster("-c", path, "--num-of-workers", "12", ADDRESS)
    assert (other.num_of_workers, other.scheduler_address) == (12, ADDRESS)
    assert other.task_timeout_seconds == 600


def test_each_command_reads_its_own_table(write):
    """Each command reads its own table of one common file."""
    path = write(UNIFIED)

    one = scheduler("-c", path)
    assert one.object_storage_address == ("tcp://127.0.0.1:6379",)
    assert one.logging_paths == ("/dev/stdout", "/var/log/scaler/scheduler.log")
    assert load(StorageSettings, "x", "", ["-c", path]).object_storage_address.endswith(":6379")
    assert load(WebSettings, "x", "", ["-c", path]).host_and_port == ("127.0.0.1", 8081)
    with pytest.raises(ConfigError, match="monitor_address is missing"):
        load(TopSettings, "x", "", ["-c", path])


def test_arguments_come_in_the_order_in_which_they_are_told(write):
    """Positional arguments come in the documented order, and may be in the file instead."""
    one = load(RecordSettings, "x", "", [ADDRESS, "feed.rec"])
    assert (one.monitor_address, one.file) == (ADDRESS, "feed.rec")
    path = write('[trace]\noutput = "out.json"\n')
    other = load(TraceSettings, "x", "", ["feed.rec", "-c", path])
    assert (other.file, other.output) == ("feed.rec", "out.json")


def test_a_flag_can_take_a_file_s_yes_back(write):
    """A switch that the file turns on can be turned off by a flag."""
    path = write(f'[scheduler]\nbind_address = "{ADDRESS}"\nprotected = true\n')

    assert scheduler("-c", path).protected
    assert not scheduler("-c", path, "--no-protected").protected


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        # The oldest names, then the newest.
        (["-hi", "5"], "heartbeat_interval_seconds", 5),
        (["--heartbeat-interval", "5"], "heartbeat_interval_seconds", 5),
        (["-his", "0.5"], "heartbeat_interval_seconds", 0.5),
        (["-ds", "10"], "death_timeout_seconds", 10),
        (["-dts", "10"], "death_timeout_seconds", 10),
        (["-mtc", "3"], "num_of_workers", 3),
        (["-n3"], "num_of_workers", 3),
        (["-wn", "a,b"], "worker_names", ("a", "b")),
        (["-pwc", "gpu,linux"], "per_worker_capabilities", {"gpu": -1, "linux": -1}),
        (["-lp", "/dev/stdout", "/tmp/x.log"], "logging_paths", ("/dev/stdout", "/tmp/x.log")),
        (["-ll", "debug"], "logging_level", "DEBUG"),
        (["-hps"], "hard_processor_suspend", True),
        (["--preload", "pkg.mod:func(1)"], "preload", "pkg.mod:func(1)"),
        (["-wit", "2"], "io_threads", 2),
    ],
)
def test_flags_of_both_generations(flags, name, value):
    """Short and long flags of both generations are understood."""
    assert getattr(cluster(ADDRESS, *flags), name) == value


@pytest.mark.parametrize(
    ("flags", "where"),
    [
        ([], ("127.0.0.1", 8081)),
        (["--port", "0"], ("127.0.0.1", 0)),
        (["--web-host", "localhost", "--web-port", "50001"], ("localhost", 50001)),
        (["--gui-address", "0.0.0.0:50001"], ("0.0.0.0", 50001)),
        (["--gui-address", "*:50001", "--address", "::1"], ("[::1]", 50001)),
        (["--gui-address", "[::1]:50001", "--port", "80"], ("[::1]", 80)),
    ],
)
def test_where_a_dashboard_is_served(flags, where):
    """Every generation's names of host and port are understood; separate ones win."""
    assert load(WebSettings, "x", "", [ADDRESS, *flags]).host_and_port == where


@pytest.mark.parametrize("prefix", ["/a/b-c", "a/b-c/", " /a/b-c// "])
def test_a_prefix_is_a_path(prefix):
    """A prefix is a path, however its ends are written."""
    assert load(WebSettings, "x", "", [ADDRESS, "--prefix", prefix]).prefix == "/a/b-c"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to show: neither monitor_address nor replay is given"),
        ([ADDRESS, "--replay", "a"], "replay shows a recording"),
        (["--record", "a", "--replay", "a"], "replay shows a recording"),
        ([ADDRESS, "--history-size", "2GB"], "name a directory with history as well"),
        (
            [ADDRESS, "--gui-address", "8081"],
            "must be host:port, such as 127.0.0.1:8081, not '8081'",
        ),
        ([ADDRESS, "--prefix", "/a b"], "must be a path of letters"),
        ([ADDRESS, "--prefix", "//a//b"], "must be a path of letters"),
    ],
)
def test_what_a_dashboard_cannot_show(arguments, message):
    """A dashboard is refused that shows neither or both of a cluster and a recording."""
    with pytest.raises(ConfigError, match=message):
        load(WebSettings, "x", "", arguments)


def test_a_dashboard_of_a_recording_needs_no_address():
    """A dashboard of a recording needs no address."""
    assert load(WebSettings, "x", "", ["--replay", "run.rec"]).replay == "run.rec"


@pytest.mark.parametrize(
    ("given", "nbytes"),
    [("1.5 GiB", 3 << 29), ("64k", 64_000), ("1000", 1000), (1000, 1000), (2e9, 2 * 10**9)],
)
def test_sizes_are_texts_or_numbers(write, given, nbytes):
    """A size may be a text or a number on a command line, in a file and in a program."""
    path = write(f"[cluster]\ntrim_memory_threshold_bytes = {given!r}\n")
    program = ClusterSettings.of(scheduler_address=ADDRESS, trim_memory_threshold_bytes=given)

    assert cluster("-c", path, ADDRESS).trim_memory_threshold_bytes == nbytes
    assert program.trim_memory_threshold_bytes == nbytes
    if isinstance(given, str):
        assert cluster("-tm", given, ADDRESS).trim_memory_threshold_bytes == nbytes
        storage = load(StorageSettings, "x", "", [ADDRESS, "--memory-limit", given])
        assert storage.memory_limit == nbytes


def test_what_is_no_size_is_refused(write):
    """The error of a wrong size names the setting and where it stands."""
    with pytest.raises(ConfigError, match="^-tm/--trim-.* must be a size such as 2GB.* not 'much'"):
        cluster("-tm", "much", ADDRESS)
    with pytest.raises(ConfigError, match="^--memory-limit must be 1 or more, not '0GB'$"):
        load(StorageSettings, "x", "", [ADDRESS, "--memory-limit", "0GB"])
    path = write("[object_storage_server]\nmemory_limit = true\n")
    with pytest.raises(ConfigError, match="line 2: .* must be a number of bytes or a text such as"):
        load(StorageSettings, "x", "", ["-c", path, ADDRESS])


def test_no_flag_means_two_things():
    """Each name and flag of a command belongs to one setting."""
    for kind in {*SECTION.values()}:
        flags = [flag for one in kind.options() for flag in one.flags]
        assert len(flags) == len(set(flags))
        assert all(one.help for one in kind.options())


def test_a_program_is_checked_as_a_file_is():
    """A program's wrong settings are refused in the same words as a file's."""
    settings = ClusterSettings.of(scheduler_address=ADDRESS, per_worker_capabilities={"gpu": 2})
    assert settings.per_worker_capabilities == {"gpu": 2}
    with pytest.raises(ConfigError, match="heartbeat_interval_seconds must be greater than 0"):
        ClusterSettings.of(scheduler_address=ADDRESS, heartbeat_interval_seconds=0)
    with pytest.raises(ConfigError, match="did you mean 'num_of_workers'"):
        ClusterSettings.of(num_of_worker=1)


# -- what is wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[cluster]\nnum_of_workers = \n", r"is not TOML: .*line 2"),
        (
            "[cluster]\n\nnum_of_workers = 0",
            r"line 3: \[cluster\] num_of_workers must be 1 or more",
        ),
        ("[cluster]\nnum_of_workers = '8'", r"line 2: .* must be a whole number, not '8'"),
        ("[cluster]\nnum_of_workers = true", r"line 2: .* must be a whole number, not True"),
        (
            "[cluster]\nnum_of_worker = 8",
            r"line 2: .* is not a setting: did you mean 'num_of_workers'",
        ),
        ("[cluster]\nxyz = 8", r"line 2: \[cluster\] xyz is not a setting; see --help"),
        ("[cluter]\nnum_of_workers = 8", r"line 1: there is no table \[cluter\]: .*'cluster'"),
        ("x = 1\n[cluster]", r"line 1: there is no table \[x\], only \[scheduler\], "),
        ("cluster = 1", "cluster must be a table"),
        ("[[cluster]]\n[[cluster]]", r"line 2: \[cluster\]: the file has 2 of these tables"),
        (
            "[cluster]\nnum_of_workers = 1\nmax_task_concurrency = 2",
            r"line 3: .* is another name of num_of_workers",
        ),
        ("[cluster]\nlogging_level = 'LOUD'", "must be one of DEBUG, INFO"),
        ("[cluster]\nheartbeat_interval_seconds = nan", "must be a number of seconds"),
        ("[cluster]\nlogging_paths = [1]", "must be texts"),
        ("[cluster]\nper_worker_capabilities = 'gpu=x'", r"line 2: .* must be numbers"),
    ],
)
def test_a_file_s_faults_are_found(write, text, message):
    """A fault in a file is told with file, line and key, and the nearest name."""
    path = write(text)

    with pytest.raises(ConfigError, match=message) as caught:
        cluster("-c", path, ADDRESS)

    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lines_are_found_in_the_right_table(write):
    """A fault is found in its own table, though others have the same key."""
    text = '[scheduler]\nio_threads = 1\n[[cluster]]\n[[cluster]]\n"io_threads" = 0 # none\n'
    tables = [one for one in read_file(write(text)) if one.name == "cluster"]

    with pytest.raises(ConfigError, match="line 5: "):
        tables[1].read(ClusterSettings)


def test_the_type_of_a_manager_says_which_settings_it_has(write):
    """A table of a manager has the settings of its type, and an unknown type is refused."""
    (table,) = read_file(write('[[worker_manager]]\ntype = "baremetal_native"\nmode = "fixed"\n'))
    settings = table.make(ManagerSettings, {"scheduler_address": ADDRESS})
    assert isinstance(settings, NativeSettings)
    assert settings.mode == "fixed"

    (table,) = read_file(write('[[worker_manager]]\ntype = "baremetal"\n'))
    with pytest.raises(ConfigError, match=r"line 1: .* 'baremetal': did you mean 'baremetal_nat"):
        table.make(ManagerSettings)

    (table,) = read_file(write("[[worker_manager]]\nmax_workers = 2\n"))
    with pytest.raises(ConfigError, match="type is missing"):
        table.make(ManagerSettings)


def test_a_manager_that_is_not_there_may_stand_beside_others(write):
    """A command takes its own table; who would run them all is told why not, with the line."""
    path = write('[[worker_manager]]\ntype = "oci_raw"\n[cluster]\nnum-of-workers = 2\n')

    assert cluster("-c", path, ADDRESS).num_of_workers == 2
    with pytest.raises(ConfigError, match="line 1: .*oci_raw are not there: OCI is not supported"):
        _ = read_file(path)[0].kind


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"worker_manager_id": "Über uns"}, "must consist of small letters"),
        ({"max_workers": 2, "min_workers": 3}, r"min_workers \(3\) is more than max_workers \(2\)"),
        ({"type": "slurm"}, "type must be baremetal_native here, not 'slurm'"),
        ({"mode": "fixed", "max_workers": -1}, "max_workers must not be -1"),
        ({"dry_run": True}, "prints what is started for a unit, and this type has none"),
    ],
)
def test_settings_of_managers_that_cannot_work(given, message):
    """What contradicts itself is told before anything is started."""
    with pytest.raises(ConfigError, match=message):
        NativeSettings.of(scheduler_address=ADDRESS, **given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0", ADDRESS], "^-n/--num-of-workers must be 1 or more, not 0$"),
        (["-n", "-1", ADDRESS], "must be 1 or more, not -1"),
        (["-n", "two", ADDRESS], "must be a whole number, not 'two'"),
        (["-n"], "expected one argument"),
        (["--num-of-worker", "1", ADDRESS], "is not an option: did you mean '--num-of-workers'"),
        (["--xyz", ADDRESS], "--xyz is not an option; see scaler_cluster --help"),
        (["--tls-cert", "x", ADDRESS], "is not an option: there is no TLS between processes"),
        (["-la", ADDRESS, ADDRESS], "is not an option: nobody listens for logs"),
        ([ADDRESS, "--scheduler-address", ADDRESS], "scheduler_address is given twice"),
        ([], r"scheduler_address is missing: give it here, or in \[cluster\]"),
        (["-his", "0", ADDRESS], "must be greater than 0"),
        (["-tts", "-1", ADDRESS], "must be 0 or more"),
        (["-pwc", "gpu=1,,", ADDRESS], "one name in 'gpu=1,,' is empty"),
        (["-pwc", "gpu=-2", ADDRESS], "or -1 for any amount"),
        (["-pwc", "gpu,gpu=1", ADDRESS], "names 'gpu' twice"),
        (["--preload", "func", ADDRESS], "names no module and function"),
        (["--config", "/nosuch/file.toml"], "cannot read /nosuch/file.toml: No such file"),
    ],
)
def test_a_command_line_s_faults_are_found(arguments, message):
    """A fault on a command line is told in one line that names the flag."""
    with pytest.raises(ConfigError, match=message) as caught:
        cluster(*arguments)

    assert "\n" not in str(caught.value)


# -- kinds of values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "listens", "address"),
    [
        ("tcp://127.0.0.1:8516", False, "tcp://127.0.0.1:8516"),
        ("tcp://some-host.example:8516", False, "tcp://some-host.example:8516"),
        ("tcp://localhost:0", True, "tcp://localhost:0"),
        ("tcp://*:8516", True, "tcp://0.0.0.0:8516"),
        ("tcp://[::1]:8516", False, "tcp://[::1]:8516"),
        ("tcp://::1:8516", False, "tcp://[::1]:8516"),
        ("tcp://[fe80:0::1%eth0]:1", False, "tcp://[fe80::1%eth0]:1"),
        (" ipc:///tmp/some/socket ", True, "ipc:///tmp/some/socket"),
    ],
)
def test_forms_of_addresses(text, listens, address):
    """Hosts by name and by number, sockets, and port 0 for a listener are addresses."""
    assert read_address(text, listens=listens) == address
    assert read_address(address, listens=listens) == address


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("127.0.0.1:8516", "must begin with tcp:// or ipc://"),
        ("", "must begin with"),
        ("http://host:80", "is not a transport"),
        ("ws://host:80", "ws:// is not supported"),
        ("tcp://host", "must end with a port"),
        ("tcp://host:port", "must end with a port"),
        ("tcp://host:65536", "must end with a port"),
        ("tcp://host:0", "must have the port at which the scheduler listens"),
        ("tcp://*:80", "must name the host"),
        ("tcp://:80", "must have a host name or an IP address"),
        ("tcp://ho st:80", "must have a host name"),
        ("tcp://[::1:80", "must have a host name"),
        ("ipc://", "must have a path"),
        ("ipc://" + "x" * 200, "must have a path of 1 to 107 bytes"),
    ],
)
def test_wrong_forms_of_addresses(text, message):
    """Each wrong form of an address has an error of its own."""
    with pytest.raises(ValueError, match=message):
        read_address(text)


@given(st.text(max_size=40), st.booleans())
def test_any_text_is_an_address_or_is_not(text, listens):
    """Any text is an address, or a ValueError that says how an address must be."""
    for typed in (text, "tcp://" + text):
        try:
            address, complaint = read_address(typed, listens=listens), ""
        except ValueError as error:
            address, complaint = None, str(error)
        if address is None:
            assert complaint.startswith("must ")
        else:
            assert read_address(address, listens=listens) == address


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.integers(-1, 1 << 40)))
def test_capabilities_there_and_back(capabilities):
    """Capabilities are read and written as a text and as a table."""
    text = ",".join(f"{name}={amount}" for name, amount in capabilities.items())

    assert CAPABILITIES.read(text) == capabilities == CAPABILITIES.check(capabilities)


def test_a_preload_is_a_call_with_plain_values():
    """A preload is a call of a module's function with plain values."""
    one = parse_preload("os.path:join('a', 'b')")
    assert (one.module, one.function, one.args, one.kwargs) == ("os.path", "join", ("a", "b"), {})
    assert parse_preload("m:f(x=[1, {'a': None}])").kwargs == {"x": [1, {"a": None}]}
    assert parse_preload(" m:C.f ").function == "C.f"


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "m",
        "m:",
        ":f",
        "m f:f",
        "m:f(",
        "m:f(x)",
        "m:f(1)(2)",
        "m:f(**{})",
        "m:1",
        "m:f;g",
        "1:f",
    ],
)
def test_what_is_no_preload(spec):
    """A text that is no preload is refused with the form to write instead."""
    with pytest.raises(ConfigError, match='write "pkg.mod:func"'):
        parse_preload(spec)


@given(st.text(max_size=30))
def test_any_text_is_a_preload_or_is_not(text):
    """Any text is a preload or a ConfigError, and nothing of it is run."""
    for spec in (text, "m:" + text, f"m:f({text})"):
        try:
            parse_preload(spec)
        except ConfigError:
            continue


# -- logs --------------------------------------------------------------------------------------


@pytest.fixture
def restored():
    """Let the engine's log be as it was after the test."""
    kept = LOGGER.handlers[:], LOGGER.level, LOGGER.propagate
    yield
    for handler in LOGGER.handlers:
        handler.close()
    LOGGER.handlers[:], LOGGER.level, LOGGER.propagate = kept


def test_logs_go_where_they_are_to(restored, tmp_path, capsys):
    """Logs go to streams in a short form, and to files with the place in the code."""
    path = tmp_path / "new" / "scaler.log"
    setup_logger(("-", str(path)), None, "warning")
    LOGGER.warning("one")
    LOGGER.info("two")

    out = capsys.readouterr().out
    assert out.startswith("[WARNING]")
    assert out.endswith(": one\n")
    assert "two" not in out
    assert ":test_config:test_logs_go_where_they_are_to:" in path.read_text()


def test_a_file_may_say_how_to_log(restored, tmp_path):
    """A configuration file of the standard library's logging may be given."""
    log = tmp_path / "out.log"
    config = tmp_path / "log.ini"
    config.write_text(
        "[loggers]\nkeys=root\n[handlers]\nkeys=file\n[formatters]\nkeys=\n"
        "[logger_root]\nlevel=INFO\nhandlers=file\n"
        f"[handler_file]\nclass=FileHandler\nargs=({str(log)!r},)\n"
    )
    script = (
        f"from scaler_cluster.logs import LOGGER, setup_logger; setup_logger((), {str(config)!r});"
        "LOGGER.info('three')"
    )
    path = os.pathsep.join(sys.path)
    subprocess.run(
        [sys.executable, "-c", script], check=True, env=os.environ | {"PYTHONPATH": path}
    )

    assert "three" in log.read_text()
    with pytest.raises(ConfigError, match="cannot use /nosuch"):
        setup_logger((), "/nosuch")


def test_a_log_that_cannot_be_written(restored):
    """A log file that cannot be written is a ConfigError."""
    with pytest.raises(ConfigError, match="logging_paths: cannot write /proc/nosuch/x"):
        setup_logger(("/proc/nosuch/x",))


# -- shells ------------------------------------------------------------------------------------


def test_a_shell_completes_flags(tmp_path):
    """A shell completes flags by argcomplete, where that is installed."""
    pytest.importorskip("argcomplete")
    answer = tmp_path / "answer"
    line = "scaler_cluster --num-of-w"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    script = "from scaler_cluster.cli.cluster import main; main()"
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=60)

    assert answer.read_text().strip() == "--num-of-workers"
