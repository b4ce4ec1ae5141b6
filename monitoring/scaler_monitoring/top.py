# PYTHON_ARGCOMPLETE_OK
"""``scaler_top``: a running cluster in a terminal."""

from __future__ import annotations

import json
import os
import select
import sys
from contextlib import contextmanager
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import guard
from scaler_cluster.config.load import load
from scaler_cluster.config.sections import TopSettings
from scaler_cluster.errors import ClusterUnreachableError, ConfigError
from scaler_cluster.wire.feed import Snapshot
from scaler_cluster.wire.feed_codec import as_dict
from scaler_monitoring.feed import Feed, keys_of
from scaler_monitoring.health import health
from scaler_monitoring.model import Model
from scaler_monitoring.view import Order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, RenderableType

PROGRAM = "scaler_top"
ABOUT = (
    "Show what a cluster does, until Ctrl-C or x. Keys sort the workers; the same key again "
    "reverses the order. The arrow keys scroll."
)
ONCE_WIDTH = 200
"""Of a page, where there is no terminal to be as wide as."""
MEASURED_S = 3.0
"""Longer ``--once`` does not wait for machines that do not say how they are."""
LOOK_S = 0.5
"""How often, in silence, it is looked whether that has lasted too long."""
QUIT = "x"
UP, DOWN, PAGE_UP, PAGE_DOWN, HOME = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~", "\x1b[H"
SCROLLS = {UP: -1, DOWN: 1, PAGE_UP: -20, PAGE_DOWN: 20, HOME: -1_000_000}


def main(arguments: Sequence[str] | None = None) -> int:
    """Show a cluster until Ctrl-C or "x"; return the exit status."""
    return guard(PROGRAM, lambda: _run(load(TopSettings, PROGRAM, ABOUT, arguments)))


def _run(settings: TopSettings) -> None:
    try:
        with Feed(settings.monitor_address, credentials=keys_of(settings)) as feed:
            if settings.json or settings.once:
                model = _look(feed, settings.timeout)
                _print_json(model) if settings.json else _print(model)
            else:
                _live(feed, settings.timeout)
    except BrokenPipeError:
        # Whoever reads it has seen enough; nothing is to be written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _silence(feed: Feed, timeout_s: float) -> ClusterUnreachableError:
    if feed.refusal:
        return ClusterUnreachableError(
            f"{feed.address} does not listen to this process: {feed.refusal}"
        )
    return ClusterUnreachableError(
        f"nothing was heard from {feed.address} for {timeout_s:g} seconds: is the scheduler "
        "running, and is that the monitor address that it printed?"
    )


def _console() -> Console:
    try:
        from rich.console import Console
    except ImportError:
        raise ConfigError(
            "scaler_top needs rich, which is not installed: pip install 'scaler-exec[monitor]'; "
            "--json works without it"
        ) from None
    return Console(width=None if sys.stdout.isatty() else ONCE_WIDTH, highlight=False)


# -- once ------------------------------------------------------------------------------------


def _look(feed: Feed, timeout_s: float) -> Model:
    """Return what is known as soon as machines have said how they are."""
    model, start = Model(), clock()
    while True:
        now = clock()
        until = start + (timeout_s if model.snapshot is None else min(MEASURED_S, timeout_s))
        message = feed.next(max(until - now, 0.0))
        if message is not None:
            model.apply(message, clock())
        snapshot = model.snapshot
        if snapshot is None and message is None:
            raise _silence(feed, timeout_s)
        if snapshot is not None and (
            message is None
            or (snapshot.scheduler.cpu is not None
                and all(row.cpu is not None for row in snapshot.machines))
        ):  # fmt: skip
            return model


def _print_json(model: Model) -> None:
    told = [
        {"kind": one.kind, "severity": one.severity, "text": one.text}
        for one in health(model, clock())
    ]
    sys.stdout.write(json.dumps({**as_dict(model.snapshot), "health": told}, indent=1) + "\n")
    sys.stdout.flush()


def _print(model: Model) -> None:
    console = _console()
    from scaler_monitoring import screen

    console.print(screen.draw(model, Order(), clock(), console, None))
    sys.stdout.flush()


# -- live ------------------------------------------------------------------------------------


class _Page:
    """What is shown, and what keys make of it."""

    def __init__(self) -> None:
        self.model = Model()
        self.is_over = False
        self._order = Order()
        self._top = 0
        """The worker that is shown first."""

    def press(self, key: str) -> None:
        """Do what a key asks for."""
        if key == QUIT:
            self.is_over = True
        elif key in SCROLLS:
            snapshot = self.model.snapshot
            last = len(snapshot.workers) - 1 if snapshot is not None else 0
            self._top = max(min(self._top + SCROLLS[key], last), 0)
        elif self._order.press(key):
            self._top = 0

    def draw(self, console: Console, now: float) -> RenderableType:
        """Return the page."""
        from scaler_monitoring import screen

        return screen.draw(self.model, self._order, now, console, console.height, self._top)


def _live(feed: Feed, timeout_s: float) -> None:
    """Draw anew with each snapshot and each key."""
    if not sys.stdout.isatty():
        raise ConfigError("this is no terminal: use --once or --json")
    console = _console()
    from rich.live import Live

    page, start = _Page(), clock()
    model = page.model
    pressed: list[str] = []
    waiting = f"Listening to {feed.address} ..."
    with _keys() as keys, Live(waiting, console=console, screen=True, auto_refresh=False) as live:
        live.refresh()
        while True:
            has_news = bool(pressed)
            while (message := feed.next()) is not None:
                model.apply(message, clock())
                has_news = has_news or isinstance(message, Snapshot)
            for key in pressed:
                page.press(key)
            now = clock()
            if page.is_over:
                return
            if now - (start if model.heard_at is None else model.heard_at) >= timeout_s:
                break
            if model.snapshot is not None and (has_news or model.is_stale(now)):
                live.update(page.draw(console, now), refresh=True)
            pressed = keys.read(feed.fd, LOOK_S)
    raise _silence(feed, timeout_s)


class _Keys:
    """The keys that are pressed, one by one."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def read(self, other: int, timeout_s: float) -> list[str]:
        """Return what was pressed; wait until something is, or ``other`` is readable."""
        fds = [other] if self._fd is None else [other, self._fd]
        readable, _, _ = select.select(fds, [], [], max(timeout_s, 0.0))
        if self._fd not in readable:
            return []
        assert self._fd is not None
        text = os.read(self._fd, 1024).decode(errors="replace")
        if not text:
            # Nobody sits there any more.
            self._fd = None
        keys = []
        while text:
            key = next((one for one in SCROLLS if text.startswith(one)), text[0])
            keys.append(key)
            text = text[len(key) :]
        return keys


@contextmanager
def _keys() -> Iterator[_Keys]:
    """Let keys arrive as they are pressed, without being shown."""
    if not sys.stdin.isatty():
        yield _Keys(None)
        return
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield _Keys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


if __name__ == "__main__":
    raise SystemExit(main())
