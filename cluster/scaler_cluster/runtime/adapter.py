"""The process of an adapter: answers by HTTP until its lifeline comes to its end.

It runs in the foreground of a command, or as a child of ``scaler``: then as
``python -m scaler_cluster.runtime.adapter``, with its settings on standard input.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

from scaler_cluster.config.webhook_settings import AdapterSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.process.log_config import LogConfig
from scaler_cluster.provision.adapters import make_adapter
from scaler_cluster.runtime.child_main import run_child

if TYPE_CHECKING:
    from scaler_cluster.provision.adapter import Adapter

log = logging.getLogger("scaler.adapter")


def run_adapter(settings: AdapterSettings, lifeline: int) -> None:
    """Answer requests until ``lifeline`` comes to its end; then shut all groups down.

    Raises ConfigError if the port is taken, or something is not installed that it needs.
    """
    adapter = make_adapter(settings)
    # Before anything listens: it may be missing.
    app = adapter.create_app()
    try:
        asyncio.run(_serve(adapter, app, lifeline))
    finally:
        adapter.close()


async def _serve(adapter: Adapter, app: Any, lifeline: int) -> None:
    from aiohttp import web

    host, port = adapter.settings.adapter_web_host, adapter.settings.adapter_web_port
    runner = web.AppRunner(app)
    await runner.setup()
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(lifeline, lambda: None if os.read(lifeline, 4096) else over.set())
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ConfigError(f"cannot listen at {host}:{port}: {error.strerror}") from None
        bound = runner.addresses[0][1]
        log.info("WorkerAdapter: answers at http://%s:%s", host, bound)
        await over.wait()
    finally:
        loop.remove_reader(lifeline)
        await runner.cleanup()


if __name__ == "__main__":
    raise SystemExit(run_child(AdapterSettings, LogConfig.from_settings, run_adapter, "an adapter"))
