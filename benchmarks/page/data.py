"""The raw data of a report, and what follows from two figures of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

TITLES = {
    "ours": "scaler-exec",
    "ppe": "ProcessPoolExecutor",
    "pool": "multiprocessing.Pool",
    "loky": "loky",
    "joblib": "joblib",
    "mpire": "mpire",
    "parsl": "Parsl",
    "executorlib": "executorlib",
    "ray": "Ray",
    "scaler": "opengris-scaler",
    "dask": "Dask distributed",
    "dask_1x2": "Dask distributed with threads",
    "processes": "Dask with processes",
    "threads": "Dask with threads",
    "sync": "Dask alone",
    "bare": "pyzmq alone",
}
BUSY_LOAD = 0.5
"""Load at the start above which the figures are of a machine that did something else as well."""


class Loss(NamedTuple):
    """A figure of which a peer has a better one."""

    scenario: str
    metric: str
    peer: str
    times: float
    """How many times better theirs is."""
    is_close: bool
    """Whether a repeat of ours was as good as one of theirs; False of a single one."""


class Data:
    """Looks up the figures of a report."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self.peers: list[str] = [name for name in TITLES if name in raw["peers"]]
        self.scenarios: dict[str, Any] = raw["scenarios"]

    def figure(self, scenario: str, peer: str, metric: str) -> Figure | None:
        """Return a figure, or None if there is none."""
        values = self.scenarios.get(scenario, {}).get("peers", {}).get(peer, {}).get(metric)
        return Figure(**values) if values else None

    def median(self, scenario: str, peer: str, metric: str) -> float | None:
        """Return its median."""
        figure = self.figure(scenario, peer, metric)
        return figure.median if figure else None

    def metrics(self, scenario: str) -> list[str]:
        """Return the metrics of a scenario, the most important one first."""
        return list(self.scenarios.get(scenario, {}).get("units", {}))

    def unit(self, scenario: str, metric: str) -> str:
        """Return the unit of a metric."""
        return str(self.scenarios[scenario]["units"][metric])

    def ratio(self, scenario: str, metric: str, peer: str) -> float | None:
        """Return how many times better ours is: below 1, theirs is."""
        better = self.scenarios[scenario]["better"][metric]
        ours, theirs = (self.median(scenario, one, metric) for one in ("ours", peer))
        if not better or not ours or not theirs or ours < 0 or theirs < 0:
            return None
        return theirs / ours if better == "less" else ours / theirs

    def losses(self) -> Iterator[Loss]:
        """Yield all figures of which a peer has a better one, in the order of the scenarios."""
        for scenario in self.scenarios:
            for metric in self.metrics(scenario):
                for peer in self.peers:
                    ratio = self.ratio(scenario, metric, peer)
                    if peer != "ours" and ratio is not None and ratio < 1:
                        close = self._is_close(scenario, metric, peer)
                        yield Loss(scenario, metric, peer, 1 / ratio, close)

    def _is_close(self, scenario: str, metric: str, peer: str) -> bool:
        ours, theirs = (self.figure(scenario, one, metric) for one in ("ours", peer))
        assert ours is not None
        assert theirs is not None
        if self.scenarios[scenario]["better"][metric] == "less":
            return theirs.high >= ours.low
        return theirs.low <= ours.high

    def fault(self, peer: str) -> str:
        """Say what becomes of a peer's tasks when a worker is killed."""
        right, failed, missing, goes_on, seconds = (
            self.median("worker_killed", peer, metric)
            for metric in ("right", "failed", "missing", "goes_on", "seconds")
        )
        if right is None or failed is None or missing is None or seconds is None:
            return ""
        then = "goes on" if goes_on else "then runs nothing more"
        if missing:
            results = "result has" if missing == 1 else "results have"
            return f"{missing:.0f} {results} not come after {seconds:.0f} s; {then}"
        if failed:
            tasks = "task fails" if failed == 1 else "tasks fail"
            return f"{failed:.0f} {tasks} of {right + failed:.0f}; {then}"
        return f"no task is lost; {then}"

    def is_busy(self) -> bool:
        """Return True if something else ran on the machine when this began."""
        return bool(self.raw["machine"]["load"] > BUSY_LOAD)
