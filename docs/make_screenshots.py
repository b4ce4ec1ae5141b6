"""Takes the pictures of the dashboard in ``docs/images``: ``python docs/make_screenshots.py``.

It looks at clusters with a real browser, in light and in dark: at one that is loaded (uneven tasks,
failures, nested tasks, graphs, large objects, a worker that dies), one that has nothing to do, one
in danger, one with the buttons of operators, at a moment before of one that goes on, and at the
recording of one with 200 workers. With names of these as arguments, at those alone.
"""

from __future__ import annotations

import io
import logging
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from playwright.sync_api import sync_playwright

from scaler import Client, SchedulerClusterCombo
from scaler_cluster.security import key_files
from scaler_monitoring.dashboard.template import LINKS
from tests.install_chromium import find_chromium
from tests.runtime.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from playwright.sync_api import Browser, FloatRect, Page

log = logging.getLogger("market")

IMAGES = Path(__file__).parent / "images"
WARM_UP_S = 25.0
"""How long there has been something to see when the first picture is taken."""
DRAWN_S = 4.0
BEFORE_S = 8.0
"""How long ago the moment was to which somebody looks back."""
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
SCHEMES = ("light", "dark")
FRAMES = 24
FRAME_S = 0.6
FILMED: FloatRect = {"x": 0, "y": 0, "width": 1440, "height": 630}
FILM_SIZE = (960, 420)
SEED = 6
MANY = 200
MIB = 1 << 20
OPENED = {
    "/functions?name=price_option": "function",
    "/tasks?failure=load_curve~LookupError": "failure",
}
"""Pages of one thing, in a cluster that is loaded."""


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
    sys.stdout.write(f"curve of {currency}: 400 points\n")
    log.warning("the last quote of %s is of yesterday", currency)
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
            futures: list[Future[Any]] = [
                client.submit(price_option, dice.randrange(5, 250)) for _ in range(80)
            ]
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


def hold_memory(mib: int) -> None:
    """Have so much memory for as long as anybody looks."""
    held = bytearray(os.urandom(MIB)) * mib
    time.sleep(600)
    del held


def check_quote(number: int) -> int:
    """Fail most of the time."""
    if number % 5:
        raise ValueError(f"quote {number} is from yesterday")
    return number


def wait_for_market(seconds: float) -> None:
    """Take as long as it is told to."""
    time.sleep(seconds)


class Camera:
    """Takes pictures of what a link shows."""

    def __init__(self, browser: Browser, link: str, state: str) -> None:
        self._browser = browser
        self._link = link
        self._state = f"-{state}" if state != "loaded" else ""

    def windows(self) -> Iterator[Page]:
        """Open a window of each size in each scheme, one after the other."""
        for size in SIZES:
            for scheme in SCHEMES:
                with self.window(size, scheme) as page:
                    yield page

    @contextmanager
    def window(self, size: str, scheme: str) -> Iterator[Page]:
        """Open a window of this size, and sign in."""
        width, height = SIZES[size]
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        self._suffix = f"{self._state}-{size}{'-dark' * (scheme == 'dark')}"
        page = context.new_page()
        page.goto(self._link)
        yield page
        context.close()

    def url(self, path: str) -> str:
        """Return where a page is."""
        return self._link.partition("/?")[0] + path

    def take(self, page: Page, path: str, name: str) -> None:
        """Take a picture of a whole page."""
        page.goto(self.url(path))
        self.shoot(page, name)

    def shoot(self, page: Page, name: str, whole: bool = True) -> None:
        """Take a picture of the page, or of what its window shows, once all of it is drawn."""
        time.sleep(DRAWN_S)
        picture = Image.open(io.BytesIO(page.screenshot(full_page=whole))).convert("RGB")
        # A third of the bytes; nobody sees the difference: a colour of few pixels is kept as well.
        picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            IMAGES / f"{name}{self._suffix}.png", optimize=True
        )

    def film(self, page: Page, path: str, name: str) -> None:
        """Take a film of a page: a picture every FRAME_S, played twice as fast."""
        page.goto(self.url(path))
        time.sleep(DRAWN_S)
        frames = []
        for _ in range(FRAMES):
            frame = Image.open(io.BytesIO(page.screenshot(clip=FILMED)))
            frames.append(frame.resize(FILM_SIZE).quantize(128, Image.Quantize.FASTOCTREE))
            time.sleep(FRAME_S)
        frames[0].save(
            IMAGES / f"{name}.gif", save_all=True, append_images=frames[1:],
            duration=int(FRAME_S * 500), loop=0, optimize=True,
        )  # fmt: skip

    def take_all(self) -> None:
        """Take pictures of all pages."""
        for page in self.windows():
            for path, title in LINKS:
                self.take(page, path, title.lower().replace(" ", "-"))


@contextmanager
def loaded() -> Iterator[str]:
    """Run a bit of everything."""
    over = threading.Event()
    with SchedulerClusterCombo(4, dashboard=True) as cluster:
        runner = threading.Thread(target=run, args=(cluster.get_address(), over))
        runner.start()
        try:
            time.sleep(WARM_UP_S)
            yield str(cluster.dashboard_link)
        finally:
            over.set()
            runner.join()


def take_loaded(camera: Camera) -> None:
    """Take a film, and pictures of all pages and of pages of one thing."""
    with camera.window("desktop", "light") as page:
        camera.film(page, "/stream", "task-stream")
    camera.take_all()
    for page in camera.windows():
        for path, name in OPENED.items():
            camera.take(page, path, name)
        for path, name in (("/graphs", "graph"), ("/workers", "worker")):
            page.goto(camera.url(path))
            page.locator("tr[data-key]").first.click()
            camera.shoot(page, name)


@contextmanager
def empty() -> Iterator[str]:
    """Have workers, and nothing for them to do."""
    with SchedulerClusterCombo(4, dashboard=True) as cluster:
        yield str(cluster.dashboard_link)


@contextmanager
def in_danger() -> Iterator[str]:
    """Have all that goes wrong at once."""
    with (
        SchedulerClusterCombo(4, dashboard=True, memory_limit=600 * MIB) as cluster,
        Client(cluster.get_address()) as client,
    ):
        client.map(wait_for_market, [0.05] * 100)
        for number in range(40):
            client.submit(check_quote, number).exception()
        client.submit(wait_for_market, 600)
        client.submit(hold_memory, 500)
        for _ in range(3):
            client.submit_verbose(abs, (1,), {}, capabilities={"gpu": 1})
        time.sleep(WARM_UP_S)
        yield str(cluster.dashboard_link)


@contextmanager
def operated() -> Iterator[str]:
    """Look by the link of operators."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        keys, shell = Path(directory) / "keys", Shell(Path(directory))
        stack.callback(shell.close)
        key_files.make_cluster(keys)
        key_files.add(keys, "operator", "ann")
        scheduler = shell.start(f"scaler_scheduler --keys {keys} tcp://127.0.0.1:0")
        address = scheduler.address("scheduler address ")
        monitor = scheduler.address("monitor address ")
        shell.start(f"scaler_cluster --keys {keys} -n 3 --worker-names red,green,blue {address}")
        dashboard = shell.start(
            f"scaler_ui {monitor} --port 0 --keys {keys} --operator-keys {keys / 'ann.key'}"
        )
        client = stack.enter_context(Client(address, keys=keys / "client.key"))
        client.map(abs, range(1000))
        for _ in range(3):
            client.submit(wait_for_market, 600)
        yield dashboard.address("for operators, at ")


def take_operated(camera: Camera) -> None:
    """Take pictures of a page with buttons, and of the question that one asks."""
    for page in camera.windows():
        page.goto(camera.url("/workers"))
        page.locator("tr[data-key]").first.click()
        camera.shoot(page, "buttons")
        page.get_by_role("button", name="Restart", exact=True).click()
        page.get_by_role("dialog").get_by_text(re.compile("^That meets")).wait_for()
        # The rest of the page would have no shade.
        camera.shoot(page, "question", whole=False)


@contextmanager
def kept() -> Iterator[str]:
    """Keep what happens in a cluster that goes on."""
    over = threading.Event()
    with (
        tempfile.TemporaryDirectory() as directory,
        SchedulerClusterCombo(4) as cluster,
        closing(Shell(Path(directory))) as shell,
    ):
        line = f"scaler_ui {cluster.get_monitor_address()} --history kept --port 0"
        dashboard = shell.start(line)
        link = dashboard.address("dashboard at ")
        runner = threading.Thread(target=run, args=(cluster.get_address(), over))
        runner.start()
        try:
            time.sleep(WARM_UP_S)
            yield link
        finally:
            over.set()
            runner.join()


def take_kept(camera: Camera) -> None:
    """Take pictures of what was before: the slider stands left of its right end."""
    at = f"?at={time.time() - BEFORE_S:.1f}"
    for page in camera.windows():
        camera.take(page, f"/{at}", "overview")
        camera.take(page, f"/stream{at}", "task-stream")


@contextmanager
def many() -> Iterator[str]:
    """Look at a recording of many workers."""
    with tempfile.TemporaryDirectory() as directory:
        shell = Shell(Path(directory))
        with SchedulerClusterCombo(MANY) as cluster, Client(cluster.get_address()) as client:
            recorder = shell.start(f"scaler_record {cluster.get_monitor_address()} many.rec")
            recorder.wait_for("many.rec")
            dice = random.Random(SEED)  # noqa: S311
            for function in (price_option, wait_for_market, price_option):
                unit = 1000 if function is price_option else 1
                client.map(function, [unit * dice.uniform(0.5, 4) for _ in range(8 * MANY)])
            recorder.interrupt()
        dashboard = shell.start("scaler_ui --replay many.rec --port 0")
        yield dashboard.address("dashboard at ")
        shell.close()


Shots = tuple["Callable[[], AbstractContextManager[str]]", "Callable[[Camera], None]"]
STATES: dict[str, Shots] = {
    "loaded": (loaded, take_loaded),
    "empty": (empty, Camera.take_all),
    "in-danger": (in_danger, Camera.take_all),
    "operators": (operated, take_operated),
    "looking-back": (kept, take_kept),
    f"{MANY}-workers": (many, Camera.take_all),
}


def main() -> None:
    """Take the pictures of the states that are named, or of all."""
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium())
        for state in sys.argv[1:] or STATES:
            show, look = STATES[state]
            with show() as link:
                look(Camera(browser, link, state))
        browser.close()


if __name__ == "__main__":
    main()
