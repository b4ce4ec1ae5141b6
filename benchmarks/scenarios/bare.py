"""The ceiling: the engine's hops over bare ZeroMQ sockets, without an engine.

Client, router, two workers, and back, by ``ipc://``, with as many messages under way as keep all
of them busy. In two forms:

``repack``
    Each message is one msgpack list of ``[id, payload]``; the router unpacks it and packs it
    anew, both ways, as a scheduler does that handles every task by itself.
``forward``
    Each message is a msgpack list of ids and lengths, and beside it the payloads in one frame;
    the router reads the ids and passes the frame on as it came.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import msgpack
import zmq

from benchmarks.peer import WORKERS
from benchmarks.processes import cpu_s
from benchmarks.scenario import Metric, Run, Scenario, check
from benchmarks.tasks import noop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Frames = list[bytes]

PAYLOAD = b"x" * 20
"""As long as the pickle of a small argument."""
TASKS_PER_MESSAGE = (1, 10, 100, 1000)
MESSAGES = 10_000
"""Most messages of a run; fewer where they are large."""
TASKS = 300_000
WINDOW_TASKS = 2_000
WINDOW_MESSAGES = 8
"""Tasks under way, or messages where that is more: enough that nobody waits for work."""
END: Frames = [b""]
"""Says hello at the beginning and ends everything at the end."""
CLIENT = b"client"


def socket_of(context: zmq.Context[Any], kind: int, name: bytes = b"") -> zmq.Socket[bytes]:
    """Return a socket that drops nothing and does not delay the end."""
    socket: zmq.Socket[bytes] = context.socket(kind)
    socket.set_hwm(0)
    socket.linger = 0
    if name:
        socket.setsockopt(zmq.ROUTING_ID, name)
    return socket


def pack_one_by_one(first: int, count: int) -> Frames:
    """Return a message in the form ``repack``."""
    return [msgpack.packb([[task, PAYLOAD] for task in range(first, first + count)])]


def unpack_one_by_one(frames: Frames) -> list[int]:
    """Return the ids in it, having touched each payload."""
    return [task for task, payload in msgpack.unpackb(frames[0]) if payload]


def repack(frames: Frames) -> Frames:
    """Do what a router does that handles each task."""
    return [msgpack.packb([[task, payload] for task, payload in msgpack.unpackb(frames[0])])]


def pack_together(first: int, count: int) -> Frames:
    """Return a message in the form ``forward``."""
    header = [list(range(first, first + count)), [len(PAYLOAD)] * count]
    return [msgpack.packb(header), PAYLOAD * count]


def unpack_together(frames: Frames) -> list[int]:
    """Return the ids in it, having cut out each payload."""
    tasks, lengths = msgpack.unpackb(frames[0])
    blob, position = frames[1], 0
    payloads = []
    for length in lengths:
        payloads.append(blob[position : position + length])
        position += length
    assert len(payloads) == len(tasks)
    return list(tasks)


def read_ids(frames: Frames) -> Frames:
    """Do what a router does that reads ids only."""
    msgpack.unpackb(frames[0])
    return frames


def work_one_by_one(frames: Frames) -> Frames:
    """Call the no-op for each task and answer in the same form."""
    return [msgpack.packb([[noop(task), data] for task, data in msgpack.unpackb(frames[0])])]


def work_together(frames: Frames) -> Frames:
    """Call the no-op for each task and answer in the same form."""
    tasks, lengths = msgpack.unpackb(frames[0])
    blob, position = frames[1], 0
    results = []
    for length in lengths:
        results.append(blob[position : position + length])
        position += length
    return [msgpack.packb([[noop(task) for task in tasks], lengths]), b"".join(results)]


FORMS: dict[str, tuple[Callable[[int, int], Frames], Callable[[Frames], list[int]]]] = {
    "repack": (pack_one_by_one, unpack_one_by_one),
    "forward": (pack_together, unpack_together),
}
ROUTER_WORK: dict[str, Callable[[Frames], Frames]] = {"repack": repack, "forward": read_ids}
WORKER_WORK: dict[str, Callable[[Frames], Frames]] = {
    "repack": work_one_by_one,
    "forward": work_together,
}


def router(address: str, form: str) -> None:
    """Pass each message of the client to the next worker, and each answer to the client."""
    handle = ROUTER_WORK[form]
    socket = socket_of(zmq.Context(), zmq.ROUTER)
    socket.bind(address)
    # Everybody says hello: a message to somebody who is not there yet would be lost.
    present = [socket.recv_multipart()[0] for _ in range(WORKERS + 1)]
    workers = [name for name in present if name != CLIENT]
    socket.send_multipart([CLIENT, *END])
    turn = 0
    while True:
        sender, *frames = socket.recv_multipart()
        if sender != CLIENT:
            socket.send_multipart([CLIENT, *handle(frames)])
        elif frames == END:
            break
        else:
            turn = (turn + 1) % WORKERS
            socket.send_multipart([workers[turn], *handle(frames)])
    for worker in workers:
        socket.send_multipart([worker, *END])
    socket.close(1000)


def worker(address: str, form: str, name: bytes) -> None:
    """Answer each message."""
    handle = WORKER_WORK[form]
    socket = socket_of(zmq.Context(), zmq.DEALER, name)
    socket.connect(address)
    socket.send_multipart(END)
    while (frames := socket.recv_multipart()) != END:
        socket.send_multipart(handle(frames))
    socket.close()


def pump(socket: zmq.Socket[bytes], form: str, batches: Iterable[tuple[int, int]]) -> list[int]:
    """Send the batches, never more than the window; return the ids that came back."""
    pack, unpack = FORMS[form]
    waiting: Iterator[tuple[int, int]] = iter(batches)
    under_way = window = 0
    done: list[int] = []
    for first, count in waiting:
        socket.send_multipart(pack(first, count))
        under_way += 1
        window = max(WINDOW_MESSAGES, WINDOW_TASKS // count)
        if under_way >= window:
            break
    while under_way:
        done += unpack(socket.recv_multipart())
        under_way -= 1
        for first, count in waiting:
            socket.send_multipart(pack(first, count))
            under_way += 1
            break
    return done


def measure(run: Run, form: str) -> dict[str, float]:
    """Run the pipeline at each number of tasks per message."""
    spawn = multiprocessing.get_context("spawn")
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        address = f"ipc://{directory}/router"
        processes = [spawn.Process(target=router, args=(address, form))]
        processes += [
            spawn.Process(target=worker, args=(address, form, b"worker%d" % number))
            for number in range(WORKERS)
        ]
        for process in processes:
            process.start()
        socket = socket_of(zmq.Context(), zmq.DEALER, CLIENT)
        socket.connect(address)
        # The router answers when all workers are there.
        socket.send_multipart(END)
        check(socket.recv_multipart(), END)
        for count in TASKS_PER_MESSAGE:
            messages = min(MESSAGES, TASKS // count)
            batches = [(number * count, count) for number in range(messages)]
            pump(socket, form, batches[: max(messages // 20, 2)])
            pids = [process.pid or 0 for process in processes]
            cpu = [time.process_time(), *map(cpu_s, pids)]
            start = time.perf_counter()
            done = pump(socket, form, batches)
            seconds = time.perf_counter() - start
            spent = [time.process_time(), *map(cpu_s, pids)]
            check(sorted(done), range(messages * count))
            figures[f"by_{count}"] = len(done) / seconds
        # Of the largest messages, whose cost is that of the tasks alone.
        used = [(now - then) / len(done) * 1e6 for now, then in zip(spent, cpu, strict=True)]
        figures |= {"client_cpu": used[0], "router_cpu": used[1], "worker_cpu": sum(used[2:])}
        socket.send_multipart(END)
        for process in processes:
            process.join()
        socket.close()
    return figures


METRICS = (
    *(Metric(f"by_{count}", f"tasks/s, {count} a message", "more") for count in TASKS_PER_MESSAGE),
    Metric("client_cpu", "us/task", "less"),
    Metric("router_cpu", "us/task", "less"),
    Metric("worker_cpu", "us/task", "less"),
)

SCENARIOS = tuple(
    Scenario(
        f"bare_pipeline_{form}",
        f"bare sockets, {words}",
        METRICS,
        partial(measure, form=form),
        peers=("bare",),
    )
    for form, words in (
        ("repack", "the router unpacks and repacks each task"),
        ("forward", "the router reads ids only"),
    )
)
