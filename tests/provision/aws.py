"""Not a real AWS: moto's server, and an agent that runs what its tasks and instances would run."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOOK_S = 0.1


class Agent:
    """Runs the commands that a service lists as processes, and ends those that it stops.

    ``listed`` yields the id of each thing that is to run, with a shell's script for it; ``ended``
    is told of one whose process has ended by itself.
    """

    def __init__(
        self,
        root: Path,
        listed: Callable[[], Iterator[tuple[str, str]]],
        ended: Callable[[str], object],
    ) -> None:
        self._root = root
        self._listed = listed
        self._ended = ended
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.lines: dict[str, str] = {}
        """The script of each thing that was run."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def running(self) -> list[str]:
        """Return what runs."""
        return [one for one, process in list(self._processes.items()) if process.poll() is None]

    def kill(self, one: str) -> None:
        """Let a machine fail under a process."""
        os.killpg(self._processes[one].pid, 9)

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self._look(dict(self._listed()))

    def _look(self, wanted: dict[str, str]) -> None:
        for one in set(wanted) - set(self._processes):
            self.lines[one] = wanted[one]
            with (self._root / f"{len(self._processes)}.log").open("w") as log:
                self._processes[one] = subprocess.Popen(
                    ["sh", "-c", wanted[one]], stdout=log, stderr=log, start_new_session=True
                )
        for one, process in self._processes.items():
            if process.poll() is not None:
                if one in wanted:
                    self._ended(one)
            elif one not in wanted:
                _end(process)

    def close(self) -> None:
        """End everything."""
        self._over.set()
        self._thread.join()
        for process in self._processes.values():
            if process.poll() is None:
                _end(process)
            process.wait(20)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a container or a machine, with all that runs in it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def instances(ec2: Any, manager: str, known: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield a manager's instances that run, each with its user data, which is asked for once."""
    tagged = [{"Name": "tag:scaler:manager", "Values": [manager]}]
    for each in ec2.describe_instances(Filters=tagged)["Reservations"]:
        for instance in each["Instances"]:
            one = instance["InstanceId"]
            if instance["State"]["Name"] != "running":
                continue
            if one not in known:
                data = ec2.describe_instance_attribute(InstanceId=one, Attribute="userData")
                known[one] = base64.b64decode(data["UserData"]["Value"]).decode()
            yield one, known[one]


def ecs_tasks(ecs: Any, cluster: str) -> Iterator[tuple[str, str]]:
    """Yield the tasks of a cluster that run, each with its COMMAND."""
    if not ecs.describe_clusters(clusters=[cluster])["clusters"]:
        return
    arns = ecs.list_tasks(cluster=cluster)["taskArns"]
    if not arns:
        return
    for task in ecs.describe_tasks(cluster=cluster, tasks=arns)["tasks"]:
        if task["lastStatus"] == "RUNNING" and task["desiredStatus"] == "RUNNING":
            (override,) = task["overrides"]["containerOverrides"]
            told = {one["name"]: one["value"] for one in override["environment"]}
            yield task["taskArn"], f"exec {told['COMMAND']}"
