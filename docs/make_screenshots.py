"""Takes the pictures of the dashboard in ``docs/images``: ``python docs/make_screenshots.py``.

It runs a bit of everything for half a minute, with a real browser on every page: uneven tasks,
failures, nested tasks, graphs, large objects, a worker that is killed.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

from scaler import Client, SchedulerClusterCombo
from scaler_monitoring.dashboard.template import LINKS
from tests.install_chromium import find_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).parent / "images"
WARM_UP_S = 25.0
"""How long there has been something to see when the first picture is taken."""
DRAWN_S = 4.0
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
SEED = 6


def price_option(milliseconds: int) -> int:
    """Take some time, of which nobody knows before how much it will be."""
    time.sleep(random.expovariate(1000 / milliseconds))
    return milliseconds


def simulate_path(steps: int) -> float:
    """Keep a CPU busy."""
    total = 0.0
    for step in range(steps * 1000):
        total += step * 0.5
    return total


def load_curve(currency: str) -> bytes:
    """Return a large result, or fail."""
    if currency == "XAU":
        raise LookupError(f"no quotes for {currency} since 2026-11-20")
    return os.urandom(400_000)


def value_portfolio(client: Client, trades: int) -> float:
    """Submit tasks, and wait for them."""
    return sum(client.map(simulate_path, [5] * trades))


def use_native_library() -> None:
    """Die, as a bug in C makes it."""
    os.kill(os.getpid(), signal.SIGSEGV)


def discount(left: float, right: float) -> float:
    """Be a node of a graph."""
    time.sleep(0.15)
    return left + right


def book(depth: int) -> dict[str, Any]:
    """Return a graph: a tree of so many levels."""
    graph: dict[str, Any] = {f"leg-{leaf}": (discount, leaf, 1) for leaf in range(2 ** (depth - 1))}
    level = list(graph)
    while len(level) > 1:
        pairs = list(zip(level[::2], level[1::2], strict=True))
        names = [f"net-{len(pairs)}-{index}" for index in range(len(pairs))]
        graph |= {name: (add, *pair) for name, pair in zip(names, pairs, strict=True)}
        level = names
    return graph | {"value": (add, level[0], 0)}


def run(address: str, over: threading.Event) -> None:
    """Keep a cluster busy until it is over."""
    dice = random.Random(SEED)  # noqa: S311
    with Client(address) as client:
        market = client.send_object(os.urandom(30_000_000))
        rounds = 0
        while not over.is_set():
            rounds += 1
            futures = [client.submit(price_option, dice.randrange(5, 250)) for _ in range(80)]
            currencies = ("EUR", "GBP", "JPY", "CHF", "XAU")
            futures += [client.submit(load_curve, dice.choice(currencies)) for _ in range(12)]
            futures += [client.submit(value_portfolio, client, 12) for _ in range(3)]
            futures += [client.submit(len, market) for _ in range(4)]
            if rounds % 4 == 2:
                futures.append(client.submit(use_native_library))
            graph = client.get(book(6), ["value"], block=False)
            for future in dice.sample(futures, 4):
                future.cancel()
            client.map(simulate_path, [dice.randrange(1, 6) for _ in range(600)])
            for future in [*futures, *graph.values()]:
                if not future.cancelled():
                    future.exception()


def take(page: Page, link: str, path: str, name: str) -> None:
    """Take a picture of a whole page."""
    page.goto(link.partition("/?")[0] + path)
    time.sleep(DRAWN_S)
    page.screenshot(path=IMAGES / f"{name}.png", full_page=True)


def take_all(browser: Browser, link: str) -> None:
    """Take pictures of all pages, of each size, and one in the dark."""
    for size, (width, height) in SIZES.items():
        context = browser.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.goto(link)
        for path, title in LINKS:
            take(page, link, path, f"{title.lower().replace(' ', '-')}-{size}")
        context.close()
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="dark")
    page = context.new_page()
    page.goto(link)
    take(page, link, "/", "overview-dark")
    context.close()


def main() -> None:
    """Run a cluster, and look at it."""
    IMAGES.mkdir(exist_ok=True)
    over = threading.Event()
    with SchedulerClusterCombo(4, dashboard=True) as cluster:
        runner = threading.Thread(target=run, args=(cluster.get_address(), over))
        runner.start()
        try:
            time.sleep(WARM_UP_S)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=find_chromium())
                assert cluster.dashboard_link is not None
                take_all(browser, cluster.dashboard_link)
                browser.close()
        finally:
            over.set()
            runner.join()


if __name__ == "__main__":
    main()
