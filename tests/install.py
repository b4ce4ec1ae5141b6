"""Install a wheel into empty environments, and look at what it does there.

``python -m tests.install --wheel FILE`` makes an environment for each Python of the classifiers that is
found here, without extras, with each of them and with all. Without an extra, each feature that needs
it must say so by its name; with it, the feature must work. ``--quick`` makes only the one without
extras on the newest Python: what is there with them, the other tests of CI see. ``tox run -e install`` and
``tox run -e installed`` run this; the wheel is the one that tox has built.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.house import CONFIG

PROJECT = CONFIG["project"]
FOR_WHO_WORKS_ON_IT = {"benchmarks", "docs", "examples", "libraries", "test"}
EXTRAS = sorted(PROJECT["optional-dependencies"].keys() - FOR_WHO_WORKS_ON_IT)
BARE = ""
SKIPPED = {"ray": "it takes 260 MB, and is not there for every Python: tox run -e guests"}
BOUND_S = 120.0

MAP = "from scaler_exec import ScalerExecutor\nwith ScalerExecutor(1) as e: "
SETTINGS = "from types import SimpleNamespace as Settings\n"
GUEST = """
from scaler_cluster.provision.{0}_cluster import {1}Backend
{1}Backend(Settings(dry_run=False, workers_per_unit=1, {0}_{2}="tcp://h:1"), Settings(manager_id="m"))
"""
PROBES: list[tuple[str, str, str]] = [
    # The extra, what a user does who needs it, and what stands for that where it would never end.
    ("adapter", "from scaler_cluster.provision.adapter import _web\n_web().Application()", ""),
    (
        "aws",
        (
            f"{SETTINGS}from scaler_cluster.provision.aws import clients\n"
            "clients(Settings(aws_access_key_id='k', aws_secret_access_key='s', aws_region='eu-west-1',"
            " aws_profile=None), 'ec2')"
        ),
        "",
    ),
    (
        "dask",
        "from scaler_exec import scaler_get\nassert scaler_get({'x': (abs, -1)}, 'x') == 1",
        "",
    ),
    ("dask", "import scaler_exec.distributed", ""),
    ("distributed", SETTINGS + GUEST.format("dask", "Dask", "scheduler"), ""),
    ("joblib", "import scaler_exec.joblib", ""),
    (
        "kubernetes",
        (
            f"{SETTINGS}from scaler_cluster.provision.kubernetes import _connect\n"
            "_connect(Settings(kubeconfig_path='/none'))"
        ),
        "import kubernetes, yaml, scaler_cluster.provision.kubernetes",
    ),
    ("monitor", "from scaler_monitoring.top import _console\n_console()", ""),
    (
        "monitor",
        "from scaler_monitoring.metrics import main\nraise SystemExit(main(['tcp://127.0.0.1:1']))",
        "import scaler_monitoring.prometheus",
    ),
    (
        "monitor",
        "from scaler_monitoring.report_command import main\nraise SystemExit(main(['/none']))",
        "import scaler_monitoring.report",
    ),
    (
        "monitor",
        (
            "from scaler_exec import ScalerExecutor\n"
            "with ScalerExecutor(1, dashboard=True) as e: assert e.dashboard_link"
        ),
        "",
    ),
    ("progress", f"{MAP}assert list(e.map(abs, [-1, -2], progress=True)) == [1, 2]", ""),
    ("ray", SETTINGS + GUEST.format("ray", "Ray", "address"), ""),
    (
        "uvloop",
        (
            "from scaler_exec import Client, SchedulerClusterCombo\n"
            "with SchedulerClusterCombo(1, event_loop='uvloop') as c, Client(c) as client:\n"
            "    assert client.submit(abs, -1).result() == 1"
        ),
        "",
    ),
]
ALSO_WITH = {"gui": "monitor", "orb": "aws"}
"""Extras of other names, and the extra that they are."""
NOTHING = {"completion", "graphblas", "zmq"}
"""Extras without which nothing is refused."""


class Environment:
    """An environment of one Python, with the wheel and an extra, or all, or none."""

    def __init__(self, directory: Path, python: Path, version: str, extra: str) -> None:
        self.name = f"Python {version}" + (f" with {extra}" if extra else "")
        self._extra = extra
        self._bin = directory / f"{version}-{extra}" / "bin"
        self._python = python

    def faults(self, wheel: Path) -> list[str]:
        """Install, and return a text for all that is not as it should be."""
        install = ["uv", "pip", "install", "-q", "--python", str(self._bin / "python")]
        extra = f"[{self._extra}]" if self._extra else ""
        wanted = f"{PROJECT['name']}{extra} @ {wheel.resolve().as_uri()}"
        for command in (
            ["uv", "venv", "-q", "--python", str(self._python), str(self._bin.parent)],
            [*install, wanted],
        ):
            status, said = run(command)
            if status:
                return [f"{self.name}: {said}"]
        found = [*self._probe_map(), *self._probe_features()]
        if self._extra in (BARE, "all"):
            found += self._probe_commands()
        return [f"{self.name}: {one}" for one in found]

    def _program(self, source: str) -> tuple[int, str]:
        return run([str(self._bin / "python"), "-W", "error", "-c", source])

    def _probe_map(self) -> list[str]:
        status, said = self._program(f"{MAP}print(list(e.map(abs, [-1, -2])))")
        return [] if (status, said.strip()) == (0, "[1, 2]") else [f"a map: {said}"]

    def _probe_commands(self) -> list[str]:
        found = []
        for command in PROJECT["scripts"]:
            status, said = run([str(self._bin / command), "--help"])
            if status or "usage:" not in said.lower():
                found.append(f"{command} --help: {said}")
        return found

    def _probe_features(self) -> list[str]:
        found = []
        for extra, source, instead in PROBES:
            if self._has(extra):
                status, said = self._program(instead or source)
                if status or "pip install" in said:
                    found.append(f"{extra} is there, but {instead or source}\nsays\n{said}")
            elif self._extra == BARE:
                status, said = self._program(source)
                if not status or f"pip install 'scaler-exec[{extra}]'" not in said:
                    found.append(f"{source}\nshould name the extra {extra}, but says\n{said}")
        return found

    def _has(self, extra: str) -> bool:
        if self._extra == "all":
            return extra not in SKIPPED
        return extra == ALSO_WITH.get(self._extra, self._extra)


def run(command: list[str]) -> tuple[int, str]:
    """Run a command in an empty directory; return its status and all that it printed."""
    variables = {name: one for name, one in os.environ.items() if name != "PYTHONPATH"}
    with TemporaryDirectory() as empty:
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=variables,
                cwd=empty,
                timeout=BOUND_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return 1, f"{error}"
    return ended.returncode, ended.stdout


def pythons() -> dict[str, Path]:
    """Return the interpreters that are found here, by the versions of the classifiers."""
    prefix = "Programming Language :: Python :: "
    names = [one.removeprefix(prefix) for one in PROJECT["classifiers"] if one.startswith(prefix)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {}
    for version in (name for name in names if name.count(".") == 1):
        places = [*sorted(pyenv.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")]
        for place in filter(None, places):
            # One of pyenv's shims is there, and may have nothing behind it.
            if run([str(place), "-c", "import sys; print(sys.version_info[:2])"])[0] == 0:
                found[version] = Path(place)
                break
    return found


def main() -> None:
    """Install, look, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    built = os.environ.get("TOX_PACKAGE")
    parser.add_argument("--wheel", type=Path, default=built, required=built is None)
    parser.add_argument("--quick", action="store_true", help="only some of them")
    given = parser.parse_args()
    unknown = set(EXTRAS) - {one for one, _, _ in PROBES} - ALSO_WITH.keys() - NOTHING - {"all"}
    if unknown:
        sys.exit(f"nothing is known of the extras {sorted(unknown)}: see PROBES")
    there = pythons()
    wanted = [(version, extra) for version in there for extra in (BARE, *EXTRAS)]
    if given.quick:
        wanted = [(list(there)[-1], BARE)]
    with TemporaryDirectory() as directory, ThreadPoolExecutor(os.cpu_count()) as threads:
        made = [
            Environment(Path(directory), there[version], version, extra)
            for version, extra in dict.fromkeys(wanted)
            if extra not in SKIPPED
        ]
        wrong = []
        for one, faults in zip(made, threads.map(lambda one: one.faults(given.wheel), made)):
            print(f"{one.name}: {'FAILED' if faults else 'as it should be'}", flush=True)
            wrong += faults
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
