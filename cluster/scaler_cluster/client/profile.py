"""What the tasks of a cluster are at: samples of their stacks, from the monitor address."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter as clock
from typing import TYPE_CHECKING, NamedTuple

from scaler_cluster.call_tree import ROOT, CallTree, Frame, unpacked
from scaler_cluster.errors import ClusterUnreachableError, ConfigError, RemoteProtocolError
from scaler_cluster.ids import PROFILE
from scaler_cluster.links import feed_link
from scaler_cluster.texts import printable
from scaler_cluster.wire import feed
from scaler_cluster.wire.feed_codec import FEED_BYTES_MAX, decode

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from scaler_cluster.security.credentials import Credentials

FIRST_S = 5.0
"""A scheduler that is there answers within a second; so does one with thousands of workers."""
SHOWN = 12
NODES_MAX = 20_000
"""Of a profile; what has no room counts at its caller. A file of it has some megabytes."""
OTHERS = "(other functions)"
"""More than a worker tells apart at once."""
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
        return printable(f"{head}\n{self.stack or '  ' + self.reason}").rstrip()


class Profile:
    """Where the time of tasks went, as far as samples tell.

    A sample counts for the time since the one before it. Time in which a worker unpickled
    arguments or pickled results is its tasks', at no function.
    """

    def __init__(self) -> None:
        self.tree = CallTree(NODES_MAX)
        """All call trees as one: on top a frame without a file for each function of tasks."""
        self.samples = 0
        """How many samples these are made of: of a hundred, a share may be 10 points off."""
        self.skipped = 0
        """How many more the scheduler had to leave out, or could not be read."""

    def add(self, message: feed.Samples, function: str | None = None) -> None:
        """Merge what a scheduler published, of this function alone or of all."""
        self.skipped += message.skipped
        for one in message.sampled:
            name = one.function or OTHERS
            if function is not None and name != function:
                continue
            try:
                tree = unpacked(one.tree)
            except RemoteProtocolError:
                # The scheduler has not looked into it: one worker must not spoil the others' part.
                self.skipped += one.samples
                continue
            self.tree.merge(tree, Frame.of(name, "", 0))
            self.samples += one.samples

    @property
    def functions(self) -> list[str]:
        """The functions that tasks called."""
        tree = self.tree
        return [frame.name for frame, above in zip(tree.frames, tree.parents, strict=True)
                if above == ROOT][1:]  # fmt: skip

    @property
    def total_s(self) -> float:
        """How long tasks were seen, on all workers together, in seconds."""
        return self.tree.total_us / 1e6

    def top(self, count: int = SHOWN) -> list[Row]:
        """Return the functions that took the most time themselves."""
        seen = {frame: us for frame, us in self.tree.by_frame().items() if frame.file}
        ordered = sorted(seen, key=lambda frame: (-seen[frame][0], -seen[frame][1]))
        return [Row(one, *(us / 1e6 for us in seen[one])) for one in ordered[:count]]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a file of https://www.speedscope.app; raises ConfigError if it cannot."""
        try:
            Path(path).write_text(json.dumps(self.speedscope()), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None

    def speedscope(self) -> dict[str, object]:
        """Return what :meth:`save` writes: a profile for each function."""
        return speedscope(self.tree)

    def __repr__(self) -> str:
        """Return the functions that took the most time, in lines."""
        total = self.total_s
        lines = [f"{self.samples} samples, {total:.1f} s of tasks"]
        if self.skipped:
            lines[0] += f" ({self.skipped} more samples found no room)"
        if total:
            lines.append("   own   whole  function")
        for frame, own_s, whole_s in self.top():
            where = f"({frame.file}:{frame.line})"
            lines.append(f"{own_s / total:6.1%} {whole_s / total:6.1%}  {frame.name} {where}")
        return printable("\n".join(lines))


def speedscope(tree: CallTree) -> dict[str, object]:
    """Return a tree with functions on top as speedscope has it: a profile for each of these."""
    numbers: dict[Frame, int] = {}
    profiles: dict[str, tuple[list[list[int]], list[int]]] = {}
    for stack, us in tree.stacks():
        path = stack or [Frame(OTHERS, "", 0)]
        samples, weights = profiles.setdefault(path[0].name, ([], []))
        samples.append([numbers.setdefault(one, len(numbers)) for one in path])
        weights.append(us)
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
        "profiles": [
            {
                "type": "sampled",
                "name": name,
                "unit": "microseconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
            for name, (samples, weights) in profiles.items()
        ],
    }


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
