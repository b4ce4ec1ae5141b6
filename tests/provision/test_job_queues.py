"""Jobs of batch systems: their scripts, and what the systems print of them."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path

import pytest

from scaler_cluster.config import job_queue_settings as kinds
from scaler_cluster.config.job_queue_settings import read_walltime
from scaler_cluster.errors import ConfigError
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.batch_systems import SYSTEMS
from scaler_cluster.provision.job_queues import JobQueueBackend
from scaler_cluster.provision.unit_command import UnitCommand
from scaler_exec import Client
from tests.provision.slurm import SlurmCluster
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, free_port, wait_until

ADDRESS = "tcp://127.0.0.1:8516"
FULL = {
    "queue": "short",
    "account": "physics",
    "cores": 4,
    "workers_per_unit": 2,
    "memory": "8G",
    "walltime": "1:30:00",
    "job_extra_directives": ("--constraint=x",),
    "job_script_prologue": ("module load python",),
    "python": "/opt/python",
    "log_directory": "/shared",
}
KINDS = {
    "slurm": kinds.SlurmSettings,
    "pbs": kinds.PBSSettings,
    "lsf": kinds.LSFSettings,
    "sge": kinds.SGESettings,
}


def settings(system: str, **given):
    return KINDS[system].of(scheduler_address=ADDRESS, dry_run=True, **given)


def backend(system: str, **given) -> JobQueueBackend:
    made = settings(system, **given)
    return JobQueueBackend(made, UnitCommand(made, "mine"))


HEADS = {
    "slurm": """\
#SBATCH --job-name=mine-1
#SBATCH --output=/shared/mine-1.log
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --signal=B:TERM@10
#SBATCH --partition=short
#SBATCH --account=physics
#SBATCH --mem=8G
#SBATCH --time=1:30:00
#SBATCH --constraint=x
""",
    "pbs": """\
#PBS -N mine-1
#PBS -j oe
#PBS -o /shared/mine-1.log
#PBS -l select=1:ncpus=4:mem=8G
#PBS -q short
#PBS -A physics
#PBS -l walltime=01:30:00
#PBS --constraint=x
""",
    "lsf": """\
#BSUB -J mine-1
#BSUB -o /shared/mine-1.log
#BSUB -n 4
#BSUB -R "span[hosts=1]"
#BSUB -q short
#BSUB -P physics
#BSUB -M 8G
#BSUB -W 01:30
#BSUB --constraint=x
""",
    "sge": """\
#$ -N mine-1
#$ -j y
#$ -o /shared/mine-1.log
#$ -S /bin/sh
#$ -cwd
#$ -notify
#$ -pe smp 4
#$ -q short
#$ -P physics
#$ -l h_vmem=8G
#$ -l h_rt=01:30:00
#$ --constraint=x
""",
}


WARNED = """\
trap 'kill -TERM $workers' USR2
(trap '' USR2; {line}) &
workers=$!
while true; do
    wait $workers
    status=$?
    kill -0 $workers 2>/dev/null || exit $status
done
"""


@pytest.mark.parametrize("system", KINDS)
def test_the_script_of_a_job(system) -> None:
    """Its head is what the system asks for; its last line becomes the unit, or waits for it."""
    script = backend(system, **FULL).job_script("mine-1")
    line = (
        f"exec /opt/python -m scaler_cluster.cli.cluster {ADDRESS} --num-of-workers=2 "
        "--worker-manager-id=mine --unit=mine-1"
    )
    tail = WARNED.format(line=line) if system == "sge" else f"{line}\n"

    assert script == f"#!/bin/sh\n{HEADS[system]}\nmodule load python\n{tail}"


def test_what_the_workers_are_told_is_in_the_script() -> None:
    """Settings that differ from the defaults are flags."""
    made = backend("slurm", per_worker_capabilities={"gpu": 1, "big": -1}, threads_per_worker=3)

    assert "--per-worker-capabilities=gpu=1,big --threads-per-worker=3" in made.job_script("mine-1")


WAITS = "17 waits: Resources"
LISTED: dict[str, tuple[str, dict[str, UnitStatus]]] = {
    "slurm": (
        (
            "16|R|mine-1|None\n17|PD|mine-2|Resources\n18|CG|mine-3|None\n19|F|mine-4|NonZeroExit\n"
            "20|R|other|None\n"
        ),
        {
            "mine-1": UnitStatus(),
            "mine-2": UnitStatus(reason=WAITS),
            "mine-3": UnitStatus(),
            "mine-4": UnitStatus(is_over=True, reason="19 is F: NonZeroExit"),
        },
    ),
    "pbs": (
        (
            "Job Id: 16.server\n    Job_Name = mine-1\n    job_state = R\n\n"
            "Job Id: 17.server\n    Job_Name = mine-2\n    job_state = Q\n"
            "    comment = Not Running: No\n\tt enough cpus\n\n"
            "Job Id: 18.server\n    Job_Name = mine-3\n    job_state = F\n"
        ),
        {
            "mine-1": UnitStatus(),
            "mine-2": UnitStatus(reason="17.server is Q: Not Running: Not enough cpus"),
            "mine-3": UnitStatus(is_over=True, reason="18.server is F"),
        },
    ),
    "lsf": (
        "16|RUN|mine-1|-\n17|PEND|mine-2|Not enough hosts\n18|EXIT|mine-3|-\n",
        {
            "mine-1": UnitStatus(),
            "mine-2": UnitStatus(reason="17 is PEND: Not enough hosts"),
            "mine-3": UnitStatus(is_over=True, reason="18 is EXIT"),
        },
    ),
    "sge": (
        (
            "<job_info><queue_info><job_list state='running'><JB_job_number>16</JB_job_number>"
            "<JB_name>mine-1</JB_name><state>r</state></job_list></queue_info><job_info>"
            "<job_list state='pending'><JB_job_number>17</JB_job_number><JB_name>mine-2</JB_name>"
            "<state>qw</state></job_list><job_list state='pending'><JB_job_number>18</JB_job_number>"
            "<JB_name>mine-3</JB_name><state>Eqw</state></job_list></job_info></job_info>"
        ),
        {
            "mine-1": UnitStatus(),
            "mine-2": UnitStatus(reason="17 is qw"),
            "mine-3": UnitStatus(is_over=True, reason="18 is Eqw"),
        },
    ),
}


@pytest.mark.parametrize("system", KINDS)
def test_what_a_system_lists(system) -> None:
    """Jobs wait with a reason, run, or are over."""
    text, expected = LISTED[system]
    found = SYSTEMS[system](settings(system)).jobs(text)

    assert {name: job.status for name, job in found.items() if name != "other"} == expected
    assert found["mine-1"].number.startswith("16")


@pytest.mark.parametrize(
    ("system", "printed", "number"),
    [
        ("slurm", "123;cluster\n", "123"),
        ("pbs", "123.server\n", "123.server"),
        ("lsf", "Job <123> is submitted to queue <normal>.\n", "123"),
        ("lsf", "no\n", ""),
        ("sge", "123\n", "123"),
        ("sge", "123.1-4:1\n", "123"),
    ],
)
def test_the_number_of_a_job(system, printed, number) -> None:
    """It is what the submitting command prints."""
    assert SYSTEMS[system](settings(system)).number(printed) == number


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30:00", 5400), ("90:00", 5400), ("1-00:00:01", 86401)],
)
def test_times(text, seconds) -> None:
    """Minutes, or a clock."""
    assert read_walltime(text) == seconds
    assert backend("slurm", walltime=text).lifetime_s == seconds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"walltime": "soon"}, "walltime must be a time such as"),
        ({"walltime": "0:00"}, "walltime must be longer"),
        ({"walltime": "0"}, "walltime must be a time"),
        ({"queue": "a b"}, "queue must be one word"),
        ({"queue": "$(reboot)"}, "queue must be one word"),
        ({"job_extra_directives": ("a\nb",)}, "must be a list of lines"),
        ({"cores": 2, "workers_per_unit": 3}, r"cores \(2\) must be at least as many"),
    ],
)
def test_settings_that_cannot_work(given, message) -> None:
    """They are told before anything is submitted."""
    with pytest.raises(ConfigError, match=message):
        settings("slurm", **given)


def test_names_of_jobs_of_grid_engine() -> None:
    """They begin with their manager's id, and it takes none that begins with a digit."""
    with pytest.raises(ConfigError, match="must begin with a letter"):
        settings("sge", worker_manager_id="1mine")


def test_a_machine_without_the_system(monkeypatch) -> None:
    """Its commands are missing."""
    monkeypatch.setenv("PATH", "/nowhere")
    made = kinds.SlurmSettings.of(scheduler_address=ADDRESS)
    with pytest.raises(ConfigError, match="sbatch, squeue, scancel cannot be found"):
        JobQueueBackend(made, UnitCommand(made, "mine"))


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Return what writes commands of a system that are scripts of the test's own."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def write(**scripts: str) -> None:
        for name, script in scripts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)

    write(sbatch="cat > $0.script; echo 5", squeue="true", scancel='echo "$@" > $0.told')
    return write


def test_what_a_system_refuses(commands, tmp_path) -> None:
    """Its words are the reason, in one line, whatever bytes they are."""
    commands(sbatch="printf 'no \\377\\nway' >&2; exit 1", squeue="exit 3")
    made = kinds.SlurmSettings.of(scheduler_address=ADDRESS, log_directory=str(tmp_path))
    queue = JobQueueBackend(made, UnitCommand(made, "mine"))

    with pytest.raises(BackendError, match=r"^sbatch: no \ufffd way$"):
        queue.start(["mine-1"])
    with pytest.raises(BackendError, match=r"^squeue: status 3$"):
        queue.look()
    commands(sbatch="true")
    with pytest.raises(BackendError, match="names no job"):
        queue.start(["mine-1"])


def test_only_jobs_of_its_own_are_seen_and_ended(commands, tmp_path) -> None:
    """Others of this user are not the manager's."""
    commands(squeue="echo '1|R|mine-1|None'; echo '2|R|else-1|None'; echo '3|F|mine-2|None'")
    made = kinds.SlurmSettings.of(scheduler_address=ADDRESS, log_directory=str(tmp_path))
    queue = JobQueueBackend(made, UnitCommand(made, "mine"))

    assert list(queue.look()) == ["mine-1", "mine-2"]
    queue.stop(["mine-1", "mine-2", "else-1"])
    assert (tmp_path / "scancel.told").read_text() == "1\n"


def test_keys_lie_in_a_file_that_nobody_else_can_read(commands, tmp_path) -> None:
    """The script names it, and has no key."""
    made = kinds.SlurmSettings.of(
        scheduler_address="tcp://192.0.2.1:8516",
        keys=str(Path(os.environ["SCALER_KEYS"])),
        log_directory=str(tmp_path / "logs"),
    )
    queue = JobQueueBackend(made, UnitCommand(made, "mine"))
    queue.start(["mine-1"])
    file = tmp_path / "logs" / ".mine.key"
    script = (tmp_path / "sbatch.script").read_text()

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secret = file.read_text().split()[3]
    assert f"--keys={file}" in script
    assert secret not in script

    commands(squeue="echo '5|PD|mine-1|Priority'")
    queue.close()
    assert file.exists(), "a job that waits needs it"
    commands(squeue="exit 1")
    queue.close()
    assert file.exists(), "nobody knows whether there is one"
    commands(squeue="true")
    queue.close()
    assert not file.exists()


# -- a real Slurm ------------------------------------------------------------------------------


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Return a Slurm whose commands are those of this process."""
    (tmp_path / "slurm").mkdir()
    made = SlurmCluster(tmp_path / "slurm")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield made
    made.close()


def jobs(slurm) -> list[str]:
    """Return the numbers of the jobs that run."""
    return slurm.run("squeue", "-h", "-t", "R", "-o", "%i").split()


@pytest.mark.slow
def test_jobs_are_units(slurm, shell, flags, tmp_path) -> None:
    """From no job to two, one of which is cancelled under load, and back to none.

    A manager that is killed finds its jobs again.
    """
    address = f"tcp://127.0.0.1:{free_port(4) + 1}"
    shell.start(f"scaler_scheduler {address}")
    line = (
        f"scaler_worker_manager slurm {address} -wmi mine --max-workers 2 -his 0.2 -sdc 0.5 "
        f"--walltime 10 --log-directory {tmp_path}"
    )
    manager = shell.start(line)
    with Client(address) as client:
        futures = [client.submit(tasks.hold, flags.path(name), flags.path("go")) for name in "ab"]
        flags.wait("a")
        flags.wait("b")
        first, _ = jobs(slurm)
        assert "mine-" in slurm.run("squeue", "-h", "-o", "%j")

        slurm.run("scancel", first)
        wait_until(lambda: len({*jobs(slurm)} - {first}) == 2, "no job takes its place")
        manager.process.send_signal(signal.SIGKILL)
        assert manager.end() == -signal.SIGKILL
        manager = shell.start(line)
        manager.wait_for("manages up to 2 workers")
        flags.set("go")
        assert all(one.result(BOUND_S) for one in futures)
        wait_until(lambda: not jobs(slurm), "jobs that have nothing to do do not end")
        assert sum(client.map(abs, range(-100, 0))) == 5050
    assert manager.interrupt() == 0
    wait_until(lambda: not jobs(slurm), "jobs are left")


def note(path: str, number: int) -> int:
    """Say which task runs, and run for a while."""
    with open(path, "a") as file:
        file.write(f"{number}\n")
    time.sleep(0.25)
    return number


@pytest.mark.slow
def test_jobs_drain_before_their_walltime(slurm, shell, tmp_path) -> None:
    """The job ends by itself, another one takes its place, and no task is cut off by either."""
    address, count = f"tcp://127.0.0.1:{free_port(4) + 1}", 60
    shell.start(f"scaler_scheduler {address}")
    # It drains at half of that time. Slurm counts in minutes, and would end it after one.
    manager = shell.start(
        f"scaler_worker_manager slurm {address} -wmi mine --max-workers 1 -his 0.2 "
        f"--walltime 0:00:20 --log-directory {tmp_path}"
    )
    ran = tmp_path / "ran"
    with Client(address) as client:
        results = client.map(note, [str(ran)] * count, range(count))
        assert list(results) == list(range(count))
    assert sorted(map(int, ran.read_text().split())) == list(range(count))

    states = slurm.run("scontrol", "-o", "show", "job").splitlines()
    first, *others = sorted(states, key=lambda line: int(line.split()[0].partition("=")[2]))
    assert others, "no other job has taken its place"
    assert "JobState=COMPLETED" in first
    assert "TimeLimit=00:01:00" in first
    assert manager.interrupt() == 0
