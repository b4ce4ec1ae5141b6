"""What the tasks of a cluster are at: samples of their stacks, from the monitor address."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from time import perf_counter as clock
from typing import TYPE_CHECKING, NamedTuple

from scaler_cluster.call_tree import CallTree, Frame, unpacked
from scaler_cluster.errors import ClusterUnreachableError, ConfigError
from scaler_cluster.ids import PROFILE
from scaler_cluster.links import feed_link
from scaler_cluster.wire import feed
from scaler_cluster.wire.feed_codec import FEED_BYTES_MAX, decode

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from scaler_cluster.security.credentials import Credentials

FIRST_S = 5.0
"""A scheduler that is there answers within a second; so does one with thousands of workers."""
SHOWN = 12
SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class Row(NamedTuple):
    """A function of :meth:`Profile.top`."""

    frame: Frame
    own_s: float
    """How long it was at work itself, on all workers together, in seconds."""
    whole_s: float
    """With all that it called."""


class RunningTask(NamedTuple):
    """A task that runs now."""

    worker: str
    """The name of the worker, or its host and process id."""
    function: str
    age_s: float
    """For how long it has been running, in seconds."""
    stack: str
    """What it is at, as in a traceback; empty: ``reason`` says why."""
    reason: str

    def __str__(self) -> str:
        """Return it as text for people."""
        head = f"{self.function} on {self.worker}, for {self.age_s:.1f} s"
        return f"{head}\n{self.stack or '  ' + self.reason}".rstrip()


class Profile:
    """Where the time of tasks went, as far as samples tell.

    A sample counts for the time since the one before it. Time in which a worker unpickled
    arguments or pickled results is its tasks', at no function.
    """

    def __init__(self) -> None:
        self.trees: dict[str, CallTree] = {}
        """The call tree of each function that tasks called."""
        self.samples = 0
        """How many samples these are made of: of a hundred, a share may be 10 points off."""
        self.skipped = 0
        """How many more the scheduler had to leave out."""

    def add(self, message: feed.Samples, function: str | None = None) -> None:
        """Merge what a scheduler published, of this function alone or of all."""
        self.skipped += message.skipped
        for one in message.sampled:
            name = one.function or "(other functions)"
            if function is None or name == function:
                self.trees.setdefault(name, CallTree()).merge(unpacked(one.tree))
                self.samples += one.samples

    @property
    def tree(self) -> CallTree:
        """All trees as one, below a frame for each function."""
        joined = CallTree()
        for name, tree in self.trees.items():
            root = Frame.of(name, "", 0)
            for stack, us in tree.stacks():
                joined.add([root, *stack], us)
        return joined

    @property
    def total_s(self) -> float:
        """How long tasks were seen, on all workers together, in seconds."""
        return sum(tree.total_us for tree in self.trees.values()) / 1e6

    def top(self, count: int = SHOWN) -> list[Row]:
        """Return the functions that took the most time themselves."""
        own: dict[Frame, int] = defaultdict(int)
        whole: dict[Frame, int] = defaultdict(int)
        for tree in self.trees.values():
            for frame, (own_us, whole_us) in tree.by_frame().items():
                own[frame] += own_us
                whole[frame] += whole_us
        ordered = sorted(own, key=lambda frame: (-own[frame], -whole[frame]))
        return [Row(one, own[one] / 1e6, whole[one] / 1e6) for one in ordered[:count]]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a file of https://www.speedscope.app; raises ConfigError if it cannot."""
        try:
            Path(path).write_text(json.dumps(self.speedscope()), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None

    def speedscope(self) -> dict[str, object]:
        """Return what :meth:`save` writes: a profile for each function."""
        numbers: dict[Frame, int] = {}
        profiles: list[dict[str, object]] = []
        for name, tree in self.trees.items():
            root = Frame.of(name, "", 0)
            stacks, weights = [], []
            for stack, us in tree.stacks():
                path = [root, *stack]
                stacks.append([numbers.setdefault(one, len(numbers)) for one in path])
                weights.append(us)
            profiles.append(
                {
                    "type": "sampled",
                    "name": name,
                    "unit": "microseconds",
                    "startValue": 0,
                    "endValue": sum(weights),
                    "samples": stacks,
                    "weights": weights,
                }
            )
        frames: list[dict[str, object]] = []
        for frame in numbers:
            where: dict[str, object] = {"file": frame.file} if frame.file else {}
            if frame.line:
                where["line"] = frame.line
            frames.append({"name": frame.name, **where})
        return {
            "$schema": SCHEMA,
            "exporter": "scaler-exec",
            "shared": {"frames": frames},
            "profiles": profiles,
        }

    def __repr__(self) -> str:
        """Return the functions that took the most time, in lines."""
        total = self.total_s
        lines = [f"{self.samples} samples, {total:.1f} s of tasks"]
        if self.skipped:
            lines[0] += f" ({self.skipped} more samples found no room)"
        if total:
            lines.append("   own   whole  function")
        for frame, own_s, whole_s in self.top():
            where = f" ({frame.file}:{frame.line})" if frame.file else ""
            lines.append(f"{own_s / total:6.1%} {whole_s / total:6.1%}  {frame.name}{where}")
        return "\n".join(lines)


def take_profile(
    address: str, credentials: Credentials, seconds: float, function: str | None = None
) -> Profile:
    """Have the tasks of a cluster sampled for so long; raises as :func:`_samples`."""
    profile = Profile()
    end = clock() + seconds
    for message in _samples(address, credentials, end):
        profile.add(message, function)
    return profile


def take_stacks(address: str, credentials: Credentials) -> list[RunningTask]:
    """Return what runs now, the longest-running first; raises as :func:`_samples`."""
    message = next(_samples(address, credentials, clock() + FIRST_S))
    rows = [
        RunningTask(
            one.name or f"{one.host}/{one.pid}", one.function, one.age_s, one.stack, one.reason
        )
        for one in message.running
    ]  # fmt: skip
    return sorted(rows, key=lambda one: -one.age_s)


def _samples(address: str, credentials: Credentials, end: float) -> Iterator[feed.Samples]:
    """Yield what a scheduler publishes until ``end``, and what was seen up to then.

    Raises ConfigError if there is no monitor address, or nobody with these keys may listen there,
    and ClusterUnreachableError if nobody answers.
    """
    if not address:
        raise ConfigError("the scheduler has no monitor address, which samples come from")
    passport = credentials.passport(address)
    listener = feed_link.subscribe(address, (PROFILE,), FEED_BYTES_MAX, passport)
    try:
        has_heard = False
        first_by = clock() + FIRST_S
        interval_s = 0.0
        while True:
            until = end + interval_s if has_heard else first_by
            left_s = until - clock()
            frames = listener.receive(max(left_s, 0.0))
            if frames is not None:
                message = decode(frames)
                assert isinstance(message, feed.Samples)
                has_heard, interval_s = True, message.interval_s + FIRST_S
                yield message
                if clock() >= end:
                    return
            elif listener.refusal:
                raise ConfigError(listener.refusal)
            elif left_s <= 0:
                raise ClusterUnreachableError(f"the scheduler does not publish at {address}")
    finally:
        listener.close()
