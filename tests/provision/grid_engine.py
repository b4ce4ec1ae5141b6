"""A real Grid Engine of one machine with four slots, in a directory."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.provision.debian import unpacked
from tests.runtime.helpers import free_port, wait_until

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = (
    "gridengine-master", "gridengine-exec", "gridengine-client", "gridengine-common",
    "libjemalloc2", "libhwloc15", "libmunge2", "libtirpc3",
)  # fmt: skip
BOOTSTRAP = """\
admin_user none
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params {root}/default/common;{root}/qmaster
binary_path /usr/sbin
qmaster_spool_dir {root}/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""
QUEUE = """\
qname all.q
hostlist {host}
seq_no 0
load_thresholds NONE
suspend_thresholds NONE
nsuspend 1
suspend_interval 00:05:00
priority 0
min_cpu_interval 00:05:00
processors UNDEFINED
qtype BATCH
ckpt_list NONE
pe_list smp
rerun FALSE
slots 4
tmpdir /tmp
shell /bin/sh
prolog NONE
epilog NONE
shell_start_mode posix_compliant
starter_method NONE
suspend_method NONE
resume_method NONE
terminate_method NONE
notify 00:00:10
owner_list NONE
user_lists NONE
xuser_lists NONE
subordinate_list NONE
complex_values NONE
projects NONE
xprojects NONE
calendar NONE
initial_state default
"""
LIMITS = ["rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem"]
ENVIRONMENT = """\
pe_name smp
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $pe_slots
control_slaves FALSE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""
HASTE = (
    "s/^schedule_interval .*/schedule_interval 0:0:1/; s/^flush_\\(.*\\)_sec .*/flush_\\1_sec 1/"
)
"""What makes its scheduler look each second, for sed."""
SETUP = """\
set -e
mount -t overlay overlay -o "lowerdir=$1/usr:/usr" /usr
mount --bind "$2/hosts" /etc/hosts
cd /usr/lib/gridengine
./spoolinit classic libspoolc "$2/default/common;$2/qmaster" init
sed "s|^execd_spool_dir .*|execd_spool_dir $2/execd|; s/^min_\\(.\\)id .*/min_\\1id 0/
s/^load_report_time .*/load_report_time 0:0:2/" /usr/share/gridengine/default-configuration \
    >"$2/configuration"
./spooldefaults configuration "$2/configuration"
./spooldefaults complexes /usr/share/gridengine/util/resources/centry
./spooldefaults usersets /usr/share/gridengine/util/resources/usersets
./spooldefaults managers root
exec ./sge_qmaster
"""
"""Shows its packages at /usr, to this process and to what is started in its view of the machine."""
COMMANDS = "qsub", "qstat", "qdel", "qconf"


class GridEngine:
    """Its daemons; ``path`` has its commands."""

    def __init__(self, root: Path) -> None:
        packages = unpacked(*PACKAGES)
        probe = f"mount -t overlay overlay -o lowerdir={packages}/usr:/usr /usr"
        done = subprocess.run(
            ["unshare", "--mount", *probe.split()], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"it finds its parts at /usr alone: {done.stderr.strip()}")
        self._root = root
        self.host = platform.node().partition(".")[0]
        port = free_port(2)
        for name in ("default/common", "qmaster/job_scripts", "execd", "bin"):
            (root / name).mkdir(parents=True)
        (root / "util").symlink_to("/usr/share/gridengine/util")
        self._write("default/common/act_qmaster", f"{self.host}\n")
        self._write("default/common/bootstrap", BOOTSTRAP.format(root=root))
        # It has to find the same name for the address that it finds for the machine.
        self._write("hosts", f"127.0.0.1 {self.host} localhost\n")
        self._variables = {
            "SGE_ROOT": str(root),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(port),
            "SGE_EXECD_PORT": str(port + 1),
            # The daemons stay in the foreground.
            "SGE_ND": "1",
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("unshare", "--mount", "sh", "-c", SETUP, "sh", packages, root)
        self.path = root / "bin"
        for name in COMMANDS:
            words = shlex.join([*self._told, f"/usr/lib/gridengine/{name}"])
            view = f'{shlex.join(self._inside)} --wd="$PWD"'
            (self.path / name).write_text(f'#!/bin/sh\nexec {view} {words} "$@"\n')
            (self.path / name).chmod(0o755)
        wait_until(lambda: self.run("qconf", "-sh") == f"{self.host}\n", self._logs, 60)
        self._configure()
        self._start(*self._inside, "/usr/lib/gridengine/sge_execd")
        wait_until(lambda: f"all.q@{self.host}" in self.run("qstat", "-f"), self._logs)

    def _configure(self) -> None:
        limits = "".join(f"{kind}_{name} INFINITY\n" for name in LIMITS for kind in "sh")
        haste = self._write("scheduler", self.run("qconf", "-ssconf"))
        subprocess.run(["sed", "-i", HASTE, haste], check=True)
        queue = QUEUE.format(host=self.host) + limits
        for flag, value in (
            ("-as", self.host),
            ("-Ap", self._write("smp", ENVIRONMENT)),
            ("-Aq", self._write("queue", queue)),
            ("-Msconf", haste),
        ):
            said = self.run("qconf", flag, value)
            assert "added" in said or "changed" in said, said

    @property
    def _inside(self) -> list[str]:
        """What runs a command in the daemons' view of this machine."""
        return ["nsenter", "--mount", f"--target={self._processes[0].pid}"]

    @property
    def _told(self) -> list[str]:
        return ["env", *(f"{name}={value}" for name, value in self._variables.items())]

    def _write(self, name: str, text: str) -> str:
        (self._root / name).write_text(text)
        return str(self._root / name)

    def _start(self, *command: object) -> None:
        with (self._root / f"{len(self._processes)}.out").open("w") as out:
            started = subprocess.Popen(
                [str(one) for one in command],
                env={**os.environ, **self._variables},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._processes.append(started)

    def run(self, *command: str) -> str:
        """Run one of its commands; return what it prints."""
        words = [str(self.path / command[0]), *command[1:]]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def _logs(self) -> str:
        logs = [*self._root.glob("*.out"), *self._root.glob("*/messages")]
        return "\n".join(f"{one.name}: {one.read_text()[-2000:]}" for one in logs)

    def close(self) -> None:
        """End all jobs and daemons."""
        self.run("qdel", "-f", "-u", "*")
        wait_until(lambda: not self.run("qstat"), lambda: self.run("qstat"))
        # In order they end within seconds, and nobody needs what they would write down.
        for process in reversed(self._processes):
            process.kill()
            process.wait(20)
