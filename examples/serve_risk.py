"""Serve the risk of portfolios over HTTP: a request becomes hundreds of tasks.

    python examples/serve_risk.py [--scenarios N]
    uvicorn --app-dir examples serve_risk:app    # to serve, and nothing else

``POST /risk`` takes what a portfolio holds of each share, and answers with its value at risk and
expected shortfall over ten days. A task draws 5,000 joint returns of all shares, and says what is
lost. A request has a deadline, after which the answer is 504; a client that goes away needs no
answer. In both cases the tasks are cancelled, and the workers are free for others.

The program serves with uvicorn, and is its own client. It asks for the risk of three portfolios at
once. A plain loop, which comes first, must find the same to the bit, and as returns are normal
here, the value at risk has a closed form. Then the client goes away from a request, and sends one
whose deadline is too short.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import socket
import sys
import time
from contextlib import asynccontextmanager, suppress
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from scaler_exec import AsyncClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SHARES, DRAWS = 40, 5_000
LEVEL = 0.99
HUGE = 50_000_000  # scenarios: nobody gets these within the deadline
SIGMAS_MAX = 5.0  # farther from the closed form than this is an error, not chance

# The covariance of the shares is this matrix by its transposed: a market, and what each share adds.
ROOT = np.random.default_rng(1).normal(0.005, 0.003, (SHARES, SHARES))


class Portfolio(BaseModel):
    """The value of each share in a portfolio, and how its risk is to be found."""

    values: list[float]
    scenarios: int = 1_000_000
    deadline_s: float = 60.0


def losses(exposure: np.ndarray, seed: int) -> np.ndarray:
    """Return what a portfolio loses in some scenarios."""
    lost: np.ndarray = np.random.default_rng(seed).standard_normal((DRAWS, SHARES)) @ -exposure
    return lost


def risk_of(parts: list[np.ndarray]) -> list[float]:
    """Return what is lost at most at the level, and what is lost on average beyond it."""
    lost = np.concatenate(parts)
    rank = int(len(lost) * LEVEL)
    lost.partition(rank)
    return [float(lost[rank]), float(lost[rank:].mean())]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Have workers as long as the server serves."""
    async with AsyncClient() as app.state.client:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/risk")
async def risk(portfolio: Portfolio, request: Request) -> list[float]:
    """Answer in time, or cancel what was begun."""
    submit, exposure = request.app.state.client.submit, portfolio.values @ ROOT
    tasks = [submit(losses, exposure, seed) for seed in range(portfolio.scenarios // DRAWS)]

    async def work() -> list[float]:
        return await asyncio.to_thread(risk_of, await asyncio.gather(*tasks))

    # The body has been read, so the next message says that the client is gone.
    working, leaving = asyncio.create_task(work()), asyncio.ensure_future(request.receive())
    both: tuple[asyncio.Future[Any], ...] = (working, leaving)
    await asyncio.wait(both, timeout=portfolio.deadline_s, return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        leaving.cancel()
        return working.result()
    reason = "the client is gone" if leaving.done() else "the deadline has passed"
    for one in both:
        one.cancel()
    await asyncio.wait(both)
    stopped = sum(task.cancelled() for task in tasks)
    print(f"{reason}: {stopped:,} of {len(tasks):,} tasks are cancelled")
    raise HTTPException(504, reason)


async def ask(shares: list[list[float]], scenarios: int) -> tuple[list[list[float]], float]:
    """Serve, and return the risk of portfolios and the seconds it took; then be impatient."""
    # Who connects before the server is ready waits until it is.
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    url = "http://127.0.0.1:{1}/risk".format(*listening.getsockname())
    async with httpx.AsyncClient(timeout=600.0) as http:
        huge = {"values": shares[0], "scenarios": HUGE}
        await http.post(url, json=huge | {"scenarios": 50 * DRAWS})  # the workers import numpy
        start = time.perf_counter()
        asked = [http.post(url, json={"values": one, "scenarios": scenarios}) for one in shares]
        answers = [answer.json() for answer in await asyncio.gather(*asked)]
        took_s = time.perf_counter() - start
        with suppress(httpx.ReadTimeout):
            await http.post(url, json=huge, timeout=0.5)
        late = await http.post(url, json=huge | {"deadline_s": 0.5})
        print(f"the answer after the deadline is {late.status_code}: {late.json()['detail']}")
    server.should_exit = True
    await serving
    return answers, took_s


def main() -> None:
    """Ask a plain loop and the service; compare both, and with the closed form."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scenarios", type=int, default=1_000_000, metavar="N")
    args = parser.parse_args()
    shares = np.random.default_rng(4).uniform(-1e6, 2e6, (3, SHARES)).tolist()

    start = time.perf_counter()
    seeds = range(args.scenarios // DRAWS)
    expected = [risk_of([losses(values @ ROOT, seed) for seed in seeds]) for values in shares]
    alone_s = time.perf_counter() - start
    found, together_s = asyncio.run(ask(shares, args.scenarios))

    normal, sigmas = NormalDist(), 0.0
    quantile = normal.inv_cdf(LEVEL)
    for values, (at_risk, shortfall) in zip(shares, found, strict=True):
        deviation = float(np.linalg.norm(values @ ROOT))
        error = math.sqrt(LEVEL * (1 - LEVEL) / args.scenarios) / normal.pdf(quantile) * deviation
        sigmas = max(sigmas, abs(at_risk - quantile * deviation) / error)
        print(f"value at risk {at_risk:,.0f} +- {error:,.0f}", end=", ")
        print(f"closed form {quantile * deviation:,.0f}; expected shortfall {shortfall:,.0f}")
    speed_up = alone_s / together_s
    print(f"one core {alone_s:.2f} s, service {together_s:.2f} s: speed-up {speed_up:.2f}")
    if found != expected or sigmas > SIGMAS_MAX:
        sys.exit("the two runs differ, or the simulation is wrong")
    print("both runs agree to the bit")


if __name__ == "__main__":
    main()
