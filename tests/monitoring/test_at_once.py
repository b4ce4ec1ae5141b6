"""What Bokeh would run in threads runs in the event loop's own."""

from __future__ import annotations

import asyncio
from threading import get_ident

import pytest

from scaler_monitoring.dashboard.at_once import AtOnce


def test_what_is_given_to_threads_runs_here():
    """Before anything else can happen; what it raises is raised where it is awaited."""

    async def ask() -> tuple[int, list[str]]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(AtOnce())
        order: list[str] = []

        def note() -> int:
            order.append("this")
            return get_ident()

        loop.call_soon(order.append, "another")
        where = await loop.run_in_executor(None, note)
        await asyncio.sleep(0)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)
        return where, order

    assert asyncio.run(ask()) == (get_ident(), ["this", "another"])
