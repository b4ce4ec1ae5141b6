"""Which process of an embedded cluster is what."""

from __future__ import annotations

import os
from typing import Any

import psutil

from benchmarks.processes import children

WORKER_DEPTH = 3
"""Workers are children of the fork server, which is one of the supervisor, which is ours."""


def depth(process: psutil.Process, root: int) -> int:
    """Return how many generations lie between a process and its ancestor ``root``."""
    return [parent.pid for parent in process.parents()].index(root) + 1


def worker_pids(executor: Any) -> list[int]:
    """Return the pids of the live workers, as the executor knows them or as the tree shows."""
    if hasattr(executor, "worker_pids"):
        return list(executor.worker_pids())
    pids = []
    for process in children():
        try:
            if depth(process, os.getpid()) == WORKER_DEPTH:
                pids.append(process.pid)
        except (psutil.Error, ValueError):
            continue
    return pids


def roles(executor: Any) -> dict[str, list[int]]:
    """Return the pids of the cluster: ``scheduler``, ``workers`` and ``others``."""
    workers = worker_pids(executor)
    found: dict[str, list[int]] = {"scheduler": [], "workers": workers, "others": []}
    for process in children():
        if process.pid in workers:
            continue
        is_scheduler = any("scheduler" in word for word in process.cmdline())
        found["scheduler" if is_scheduler else "others"].append(process.pid)
    return found
