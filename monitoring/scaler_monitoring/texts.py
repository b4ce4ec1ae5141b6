"""Texts of users on one line: what they call things, and what workers and clients are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler_cluster.wire import feed

CHARS_MAX = 120
"""Of a text of users that shares a line with others."""


def plain(text: str) -> str:
    """Return text of users as one line that does nothing to a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def short(text: str, most: int = CHARS_MAX) -> str:
    """Return text of users as one line of so many characters at most."""
    text = plain(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def worker_name(
    worker: feed.Worker | feed.WorkerJoined | feed.WorkerDied | feed.LogLine,
) -> str:
    """Return what a worker is called: its name or its host, with its process id."""
    name, host, pid = short(worker.name), short(worker.host), worker.pid
    return f"{name}|{pid}" if name else f"{pid}|{host}"


def client_name(client: feed.Client | feed.ClientJoined | feed.ClientLeft) -> str:
    """Return what a client is called: its process id and its host."""
    return f"{client.pid}|{short(client.host)}"
