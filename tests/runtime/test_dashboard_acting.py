"""Operators act by the dashboard: with the link for operators alone, and after a second click."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from scaler_cluster.security import key_files
from scaler_exec import Client, Met, Operator, ScalerExecutor
from tests.runtime import tasks
from tests.runtime.held_tasks import start
from tests.runtime.helpers import BOUND_S, free_port, wait_until
from tests.runtime.shell import Shell
from tests.runtime.test_dashboard_for_all import AXE, FAULTS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runtime.shell import Command

pytestmark = [pytest.mark.system]

PAUSE_RED = {"action": "pause", "kind": "worker", "name": "red", "force": False, "trial": False}

ACT = """async body => {
    const answer = await fetch("act", {method: "POST", body: JSON.stringify(body)})
    return [answer.status, await answer.json()]
}"""
SOURCE = """() => {
    const walk = root => {
        for (const one of root.querySelectorAll("*")) {
            if (one.tagName === "SCALER-TABLE" && one.dataset.label === "Machines") return one.source
            const found = one.shadowRoot && walk(one.shadowRoot)
            if (found) return found
        }
    }
    return walk(document)
}"""
"""What the table of machines shows, and says to the dashboard by the WebSocket."""


@dataclass
class Cluster:
    """A scheduler whose log can be read, two workers that have names, and a dashboard."""

    keys: Path
    address: str
    monitor: str
    scheduler: Command
    dashboard: Command

    def key(self, name: str) -> Path:
        """Return the file of a key."""
        return self.keys / f"{name}.key"

    @property
    def link(self) -> str:
        """The link of those who only look."""
        return self.dashboard.address("dashboard at ")

    @property
    def acting_link(self) -> str:
        """The link of operators."""
        return self.dashboard.address("for operators, at ")

    def ask(self, method: str, path: str, token: str, body: str = "", **headers: str):
        """Return the status, the answer and its headers to a request with a token in its link."""
        return ask_at(self.link, method, path, token, body, **headers)


def ask_at(link: str, method: str, path: str, token: str, body: str = "", **headers: str):
    """Return the status, the answer and its headers to a request to where a link leads."""
    connection = http.client.HTTPConnection(urlsplit(link).netloc, timeout=BOUND_S)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, f"{path}?token={token}", body, named)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def token_of(link: str) -> str:
    """Return the token in a link."""
    return parse_qs(urlsplit(link).query)["token"][0]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, standing):
    directory = tmp_path_factory.mktemp("acting")
    keys, shell = directory / "keys", Shell(directory)
    key_files.make_cluster(keys)
    key_files.add(keys, "operator", "ann")
    address = f"tcp://127.0.0.1:{free_port(3)}"
    scheduler = shell.start(f"scaler_scheduler --keys {keys} {address}")
    monitor = scheduler.address("monitor address ")
    workers = shell.start(f"scaler_cluster --keys {keys} -n 2 --worker-names red,blue {address}")
    dashboard = shell.start(
        f"scaler_ui {monitor} --port 0 --keys {keys} --operator-keys {keys / 'ann.key'}"
    )
    standing |= {scheduler.pid, workers.pid, dashboard.pid}
    workers.wait_for("started")
    yield Cluster(keys, address, monitor, scheduler, dashboard)
    shell.close()
    assert dashboard.process.returncode == 0
    assert "Traceback" not in dashboard.err


@pytest.fixture
def executor(cluster, flags):
    """Return an executor; what its tasks wait for comes at the end of the test at the latest."""
    with ScalerExecutor(address=cluster.address, keys=cluster.key("client")) as made:
        yield made
        flags.set("go")


@pytest.fixture
def operator(cluster):
    with Operator(cluster.address, keys=cluster.key("ann")) as made:
        yield made
        for worker in ("red", "blue"):
            made.resume(worker=worker)


@pytest.fixture
def open_page(cluster, open_window):
    """Return what opens a page by the link of operators, and waits until it shows the cluster."""

    def open_page(path):
        page = open_window().enter(cluster.acting_link, path)
        page.locator("p.good").wait_for()
        return page

    return open_page


def ask(page, word):
    """Press a button; return the dialog once it says what that would meet."""
    page.get_by_role("button", name=word, exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text(re.compile("^That meets")).wait_for()
    return dialog


def agree(page, word):
    """Press the button of the dialog that acts; return what is said after that."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=f"Yes, {word}", exact=True).click()
    said = dialog.get_by_role("status")
    wait_until(lambda: "one: " in said.inner_text(), lambda: f"no end: {said.inner_text()}")
    text = said.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    return text


def test_tasks_are_cancelled_after_a_second_click(cluster, open_page, executor, operator, flags):
    """The dialog says first what it would meet; nothing is done before the second click."""
    futures = start(executor, operator, flags, 3)
    page = open_page("/functions?name=hold")

    dialog = ask(page, "Cancel all its tasks")
    assert dialog.get_by_role("heading").inner_text() == "Function hold: cancel all its tasks?"
    assert dialog.get_by_text("That meets 3 tasks of 1 client.").is_visible()
    page.evaluate(AXE)
    assert page.evaluate(FAULTS) == []
    # Enter presses what has the focus: that closes it.
    page.keyboard.press("Enter")
    dialog.wait_for(state="hidden")
    assert operator.cancel(function="hold", trial=True) == Met(3, "3 tasks of 1 client")

    ask(page, "Cancel all its tasks")
    assert agree(page, "cancel all its tasks") == "Done: 3 tasks of 1 client."
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(BOUND_S)
    said = "operator:ann has cancelled function hold: 3 tasks of 1 client"
    wait_until(lambda: said in cluster.scheduler.out, "no line in the log of the scheduler")

    # The scheduler's refusal is shown in words.
    page.get_by_role("button", name="Cancel all its tasks").click()
    refused = "That cannot be done: no function hold has tasks that have not ended."
    dialog.get_by_text(refused).wait_for()
    assert dialog.get_by_role("button").all_inner_texts() == ["Close"]
    page.close()


def test_a_dialog_is_one(open_page, operator):
    """It has the focus, a title and a description; Escape closes it, and goes no step back."""
    page = open_page("/workers")
    page.locator("tr[role=row]", has_text="red").first.get_by_role("link").first.click()
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="pause?")
    dialog.get_by_text("That meets 1 worker, of which 0 run tasks.").wait_for()
    focused = page.evaluate("document.activeElement.textContent")
    assert focused == "No"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Yes, pause"
    page.keyboard.press("Control+k")
    assert page.get_by_role("dialog").count() == 1

    page.keyboard.press("Escape")

    dialog.wait_for(state="hidden")
    assert "worker=" in page.url
    assert page.get_by_role("button", name="Pause").evaluate(
        "one => one.getRootNode().activeElement === one"
    )
    page.close()


def test_workers_are_paused_resumed_and_restarted(open_page, executor, operator, flags):
    """What is paused is marked as such; by force also a worker goes that runs a task."""
    page = open_page("/workers")
    row = page.locator("tr[role=row]", has_text="red").first
    row.get_by_role("link").first.click()
    ask(page, "Pause")
    assert agree(page, "pause") == "Done: 1 worker, of which 0 run tasks."
    page.get_by_role("button", name="Resume", exact=True).wait_for()
    page.go_back()
    row.get_by_text("paused").wait_for()
    row.get_by_role("link").first.click()
    ask(page, "Resume")
    agree(page, "resume")
    page.get_by_role("button", name="Pause", exact=True).wait_for()

    operator.pause(worker="blue")
    before = executor.submit(os.getpid).result(BOUND_S)
    ask(page, "Restart")
    agree(page, "restart")
    wait_until(lambda: not psutil.pid_exists(before), "the worker is still there")
    (future,) = start(executor, operator, flags)
    running = flags.wait("started0")
    page.goto(page.url.partition("?")[0])
    row.get_by_text("hold").wait_for()
    row.get_by_role("link").first.click()
    ask(page, "Restart by force")
    assert agree(page, "restart by force") == "Done: 1 worker, of which 1 run tasks."
    wait_until(lambda: not psutil.pid_exists(running), "the worker is still there")
    flags.set("go")
    assert future.result(BOUND_S) != running
    page.close()


def test_machines_are_paused(open_page, operator):
    """A row that is chosen has buttons, and the column says how many workers are paused."""
    page = open_page("/machines")
    row = page.locator("tr[role=row]", has_text=socket.gethostname()).first
    row.locator("td").nth(1).click()

    ask(page, "Pause")
    assert agree(page, "pause") == "Done: 2 workers, of which 0 run tasks."

    wait_until(lambda: row.locator("td").nth(8).inner_text() == "2", "they are not marked")
    ask(page, "Resume")
    agree(page, "resume")
    wait_until(lambda: row.locator("td").nth(8).inner_text() == "0", "they are still marked")
    page.goto(page.url.replace("machines", ""))
    page.get_by_text(
        f"operator:ann has resumed machine {socket.gethostname()}: 2 workers"
    ).wait_for()
    page.close()


def test_a_task_a_graph_and_a_client_are_cancelled(cluster, open_page, operator, flags):
    """Each has its button where it has its page, or its row."""
    with Client(cluster.address, keys=cluster.key("client")) as client:
        hold = partial(tasks.hold, flags.path("started"), flags.path("go"))
        graph = client.get({"a": (hold,), "b": (abs, "a")}, ["b"], block=False)["b"]
        flags.wait("started")
        page = open_page("/graphs")
        page.locator("tr[role=row]", has_text="running").first.click()
        ask(page, "Cancel")
        # Both nodes are one task, as a chain is.
        assert agree(page, "cancel") == "Done: 1 task of 1 client."
        with pytest.raises(CancelledError):
            graph.result(BOUND_S)

        page.goto(page.url.partition("graphs")[0] + "workers")
        page.locator("p.good").wait_for()
        # Those of the workers that died may have held something as well.
        there = page.get_by_role("table", name="Workers", exact=True)
        held = there.locator("tr[role=row]", has_text="hold")
        wait_until(lambda: held.count() == 0, "the node is still shown")
        first, second = (client.submit(tasks.hold, flags.path(n), flags.path("go")) for n in "ab")
        wait_until(lambda: held.count() == 2, there.inner_text)
        held.first.get_by_role("link").nth(1).click()
        page.get_by_text("Running now").wait_for()
        ask(page, "Cancel")
        assert agree(page, "cancel") == "Done: 1 task of 1 client."
        wait_until(
            lambda: first.done() != second.done(), lambda: f"not one of them: {first}, {second}"
        )

        page.goto(page.url.partition("tasks")[0] + "clients")
        page.locator("tr[role=row]", has_text=str(os.getpid())).first.click()
        ask(page, "Cancel all its work")
        assert agree(page, "cancel all its work") == "Done: 1 task of 1 client."
        for future in (first, second):
            with pytest.raises(CancelledError):
                future.result(BOUND_S)
        page.close()


def deeds_done(cluster, operator) -> int:
    """Return how many the scheduler has logged by now: it answers after it has done a deed."""
    operator.resume(worker="red", trial=True)
    return cluster.scheduler.out.count("operator:ann has")


def test_who_only_looks_cannot_act(cluster, open_window, operator):
    """Their tabs have no button, and what they send by hand does nothing."""
    window = open_window()
    window.excuse("403")
    # The link that was opened last counts.
    window.enter(cluster.acting_link, "/settings")
    page = window.enter(cluster.link, "/workers")
    page.locator("p.good").wait_for()
    page.locator("tr[role=row]", has_text="red").first.get_by_role("link").first.click()
    page.get_by_text("of work").wait_for()
    assert page.locator("#deed, .deed").count() == 0
    before = deeds_done(cluster, operator)

    answer = page.evaluate(ACT, PAUSE_RED)

    assert answer == [403, {"refused": "only who has the link for operators may act"}]
    assert deeds_done(cluster, operator) == before
    page.close()


def test_what_a_tab_says_by_its_websocket_does_not_make_it_act(cluster, open_page, open_window):
    """A row that cannot be chosen is said to be; in a tab of operators that brings buttons."""
    page = open_page("/machines")
    (key,) = page.evaluate(f"({SOURCE})().data.key")
    choose = f"key => {{ const one = ({SOURCE})(); one.tags = [...one.tags.slice(0, 3), key] }}"
    page.evaluate(choose, key)
    page.locator(".deed").first.wait_for()
    page.close()

    page = open_window().enter(cluster.link, "/machines")
    page.locator("p.good").wait_for()
    page.evaluate(choose, key)
    up = page.locator("p.good")
    for _ in range(3):
        # It is brought up to date after that.
        before = up.inner_text()
        wait_until(lambda: up.inner_text() != before, "the page stands still")  # noqa: B023
    assert page.locator("#deed, .deed").count() == 0
    page.close()


def test_only_the_token_of_operators_acts(cluster, operator):
    """Nobody else's request does, nor one of another page, nor one that says nothing sensible."""
    acting, looking = token_of(cluster.acting_link), token_of(cluster.link)
    body, here = json.dumps(PAUSE_RED), f"http://{urlsplit(cluster.link).netloc}"
    before = deeds_done(cluster, operator)

    assert acting != looking
    assert cluster.ask("POST", "/act", looking, body)[0] == 403
    assert cluster.ask("POST", "/act", looking, body, Cookie=f"token={acting}")[0] == 403
    assert cluster.ask("POST", "/act", "wrong", body)[0] == 403
    assert cluster.ask("POST", "/act", acting, body, Origin="http://evil.example")[0] == 403
    assert cluster.ask("POST", "/act", acting, body, Origin="http://127.0.0.1:1")[0] == 403
    assert cluster.ask("POST", "/act", acting, body, Host="evil.example")[0] == 403
    assert cluster.ask("POST", "/act", acting, "{}")[0] == 400
    assert cluster.ask("PUT", "/act", acting, body)[0] == 405
    assert deeds_done(cluster, operator) == before

    trial = json.dumps({**PAUSE_RED, "trial": True})
    status, said, _ = cluster.ask("POST", "/act", acting, trial, Origin=here)
    assert (status, json.loads(said)) == (200, {"met": "1 worker, of which 0 run tasks"})
    assert deeds_done(cluster, operator) == before


def test_no_page_around_it_can_have_a_button_pressed(cluster):
    """A browser shows the pages of operators in no frame."""
    framed = {"Sec_Fetch_Dest": "iframe"}
    for link, ancestors in ((cluster.acting_link, "'none'"), (cluster.link, "'self' http://")):
        status, _, headers = cluster.ask("GET", "/workers", token_of(link), **framed)
        assert status == 200
        assert f"frame-ancestors {ancestors}" in headers["Content-Security-Policy"]


def test_who_goes_before_the_answer_leaves_nothing(cluster, operator):
    """A tab that is closed while the scheduler is asked: the dashboard logs no error."""
    acting = token_of(cluster.acting_link)
    body = json.dumps({**PAUSE_RED, "trial": True})
    where = urlsplit(cluster.link)
    for _ in range(3):
        with socket.create_connection((where.hostname, where.port), BOUND_S) as tab:
            head = f"POST /act?token={acting} HTTP/1.1\r\nHost: {where.netloc}\r\n"
            tab.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    assert cluster.ask("POST", "/act", acting, body)[0] == 200
    # What it wrote to stderr is looked at when it has ended.


def test_a_stack_file_has_the_second_link_too(cluster, shell):
    """Its dashboard is a process of its own, which acts with the same key."""
    file = shell.write(
        "stack.toml",
        f'[webui]\nport = 0\nmonitor_address = "{cluster.monitor}"\nkeys = "{cluster.keys}"\n'
        f'operator_keys = "{cluster.key("ann")}"\n',
    )
    link = shell.start(f"scaler {file}").address("for operators, at ")
    trial = json.dumps({**PAUSE_RED, "trial": True})

    def answer() -> dict[str, str]:
        status, said, _ = ask_at(link, "POST", "/act", token_of(link), trial)
        assert status == 200
        return json.loads(said)

    met = {"met": "1 worker, of which 0 run tasks"}
    # At first it has not heard the scheduler.
    wait_until(lambda: answer() == met, lambda: f"nothing is met: {answer()}")
