"""A real Slurm of one machine with four CPUs, in a directory."""

from __future__ import annotations

import os
import platform
import secrets
import subprocess
from typing import TYPE_CHECKING

from tests.provision.debian import unpacked
from tests.runtime.helpers import free_port, wait_until

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = (
    "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libmunge2",
    "libhwloc15", "libjwt0", "libjansson4", "liblua5.1-0", "libfreeipmi17", "libipmimonitoring6",
    "librdkafka1", "libhttp-parser2.9", "libyaml-0-2", "libjson-c5",
)  # fmt: skip
CONFIG = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
SlurmdPort={other}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
PluginDir={plugins}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SwitchType=switch/none
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SlurmCluster:
    """Slurm's daemons; :attr:`path` has its commands, which need :attr:`environment`."""

    def __init__(self, root: Path) -> None:
        packages = unpacked(*PACKAGES)
        self._root = root
        self.host = platform.node().partition(".")[0]
        libraries = packages / "usr/lib/x86_64-linux-gnu"
        port = free_port(2)
        for name in ("state", "spool"):
            (root / name).mkdir()
        config = root / "slurm.conf"
        plugins = libraries / "slurm-wlm"
        config.write_text(
            CONFIG.format(host=self.host, root=root, port=port, other=port + 1, plugins=plugins)
        )
        self.path = packages / "usr/bin"
        self.environment = {
            "PATH": f"{self.path}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": f"{libraries}:{plugins}",
            "SLURM_CONF": str(config),
        }
        key = root / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        self._processes: list[subprocess.Popen[bytes]] = []
        sbin = packages / "usr/sbin"
        self._start(
            sbin / "munged", "--foreground", "--force", f"--socket={root}/munge.socket",
            f"--key-file={key}", f"--pid-file={root}/munged.pid", f"--log-file={root}/munged.log",
            f"--seed-file={root}/munged.seed",
        )  # fmt: skip
        wait_until((root / "munge.socket").exists, "munged does not listen")
        self._start(sbin / "slurmctld-wlm", "-D", "-f", config)
        self._start(
            sbin / "slurmd-wlm", "-D", "-f", config, "-d", sbin / "slurmstepd-wlm", "-N", self.host
        )
        wait_until(self._is_up, self._logs)

    def _start(self, *arguments: object) -> None:
        log = self._root / f"{len(self._processes)}.out"
        with log.open("w") as out:
            self._processes.append(
                subprocess.Popen(
                    [str(one) for one in arguments],
                    env={**os.environ, **self.environment},
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            )

    def run(self, *command: str) -> str:
        """Run one of its commands; return what it prints."""
        done = subprocess.run(
            [str(self.path / command[0]), *command[1:]],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    def _is_up(self) -> bool:
        return self.run("sinfo", "-h", "-o", "%t").strip() == "idle"

    def _logs(self) -> str:
        logs = [*self._root.glob("*.log"), *self._root.glob("*.out")]
        return "\n".join(f"{one.name}: {one.read_text()[-2000:]}" for one in logs)

    def close(self) -> None:
        """End all jobs and daemons."""
        self.run("scancel", "--state=RUNNING,PENDING", "--me")
        wait_until(lambda: not self.run("squeue", "-h").strip(), "jobs do not end")
        for process in reversed(self._processes):
            process.terminate()
            process.wait(20)
