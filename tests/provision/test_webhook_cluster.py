"""Our scheduler and our adapter by their commands, as the documents of version 1.12 print them."""

from __future__ import annotations

import pytest

from scaler_exec import Client
from tests.runtime.helpers import free_port, wait_until

pytestmark = pytest.mark.slow
pytest.importorskip("aiohttp")


@pytest.mark.parametrize(
    "flags",
    ["--adapter-webhook-url {url}", "-scs fixed_elastic --adapter-webhook-urls {url} {other}"],
)
def test_workers_come_by_the_webhook_and_go_again(shell, flags) -> None:
    """From no workers on, a map comes back; afterwards there are none."""
    base = free_port(6)
    address, port = f"tcp://127.0.0.1:{base + 1}", base + 4
    url, other = (f"http://127.0.0.1:{one}" for one in (port, port + 1))
    native = f"scaler_worker_adapter_native {address} --host 127.0.0.1 --max-workers 1 --port"
    adapters = [shell.start(f"{native} {port}")]
    if "{other}" in flags:
        adapters.append(shell.start(f"{native} {port + 1}"))
    for one in adapters:
        one.wait_for("WorkerAdapter: answers at http://127.0.0.1:")
    scheduler = shell.start(f"scaler_scheduler {address} {flags.format(url=url, other=other)}")
    scheduler.wait_for("manager webhook-1")
    with Client(address) as client:
        assert sum(client.map(abs, range(-1000, 0))) == 500_500
    assert "starts webhook-1-" in scheduler.out
    wait_until(lambda: "of 0 workers" in scheduler.out, "the workers do not leave")
    assert scheduler.interrupt() == 0


def test_a_file_runs_adapters(shell) -> None:
    """Tables of adapters are run like all others."""
    port = free_port(2)
    shell.write(
        "stack.toml",
        f"""
        [scheduler]
        scheduler_address = "tcp://127.0.0.1:0"
        adapter_webhook_urls = ["http://127.0.0.1:{port}"]
        [native_worker_adapter]
        adapter_web_host = "127.0.0.1"
        adapter_web_port = {port}
        max_workers = 1
        [fixed_native_worker_adapter]
        max_workers = 1
        """,
    )
    stack = shell.start("scaler stack.toml")
    stack.wait_for("Worker[FIX|")
    stack.wait_for("manager webhook-1 (pid")
    with Client(stack.address("scheduler address ")) as client:
        assert client.submit(abs, -1).result(30) == 1
    assert stack.interrupt() == 0
    assert stack.err == ""
