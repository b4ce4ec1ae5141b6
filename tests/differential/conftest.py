"""Players: processes that play programs, each on one engine."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.runtime.helpers import BOUND_S, environment, wait_gone

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items) -> None:
    """Mark every test in here as slow: each starts processes."""
    # As text: these are all items of the session, and a Path takes its time.
    here = f"{HERE}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.slow)


class Player:
    """Plays programs on one engine, in a process of its own, which is started when needed."""

    def __init__(self, engine: str, place: Path, standing: set[int]) -> None:
        self.engine = engine
        self._place = place
        self._standing = standing
        self._process: subprocess.Popen[bytes] | None = None

    def send(self, program: list) -> None:
        """Have it play a program, whose answers are to be read."""
        if self._process is None:
            self._process = self._start()
            self._standing.add(self._process.pid)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(program).encode() + b"\n")
        self._process.stdin.flush()

    def _start(self) -> subprocess.Popen[bytes]:
        places = {"TMPDIR": self._place / "tmp", "SCALER_SHARED_MEMORY": self._place / "shm"}
        for path in places.values():
            path.mkdir(parents=True, exist_ok=True)
        settings = environment()
        for name in ("PYTHONHASHSEED", "OMP_NUM_THREADS"):
            # These decide about differences.
            settings.pop(name, None)
        with (self._place / "stderr").open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, str(HERE / "player.py"), self.engine],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                # Pools are forked here, which threads of numpy's would survive badly.
                env=settings | {"OPENBLAS_NUM_THREADS": "1"} | places,
            )

    def answers(self) -> list:
        """Return the answers to what was sent; fail if there are none in time."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], 1.5 * BOUND_S)
            read = os.read(process.stdout.fileno(), 1 << 20) if ready else b""
            if not read:
                if not ready:
                    process.send_signal(signal.SIGUSR1)
                self.stop()
                said = (self._place / "stderr").read_text(errors="replace")[-5_000:]
                pytest.fail(f"{self.engine} {'ended' if ready else 'hangs'}:\n{said}")
            line += read
        return json.loads(line)

    def stop(self) -> None:
        """End it, by force if need be."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(timeout=BOUND_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            pytest.fail(f"{self.engine} does not end")
        wait_gone(process.pid)


@pytest.fixture(scope="module")
def play(standing):
    """Return what has several engines play a program, and returns their answers by engine."""
    # Short: the path of a Unix socket goes in here.
    top = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    players: dict[str, Player] = {}

    def play(program: list, *engines: str) -> dict[str, list]:
        try:
            for engine in engines:
                if engine not in players:
                    players[engine] = Player(engine, top / engine, standing)
                players[engine].send(program)
            return {engine: players[engine].answers() for engine in engines}
        except BaseException:
            # Answers that nobody reads would be taken for those of the next program.
            for player in players.values():
                player.stop()
            raise

    yield play

    for player in players.values():
        player.stop()
    left = [path.name for path in top.glob("*/*/scaler-*")]
    shutil.rmtree(top)
    assert not left, "temporary directories or shared memory were left behind"
