"""A client of the soak, in a process of its own.

Run as ``python -m benchmarks.soak.client ADDRESS SEED MARKS TIMEOUT``. It works until its standard
input ends, and then until everything has come back. It says what it finds in lines of JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from typing import Any

from benchmarks.soak.load import KINDS, Order, Runner, Watched
from scaler_exec import ScalerExecutor

TELL_EVERY_S = 1.0
CONNECT_S = 60.0


def main() -> int:
    """Run all loads."""
    address, seed, marks, timeout_s = sys.argv[1:]
    lock, over = threading.Lock(), threading.Event()

    def tell(what: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(what) + "\n")
            sys.stdout.flush()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    with ScalerExecutor(address=address, timeout=CONNECT_S) as executor:
        order = Order(executor, int(seed), marks, float(timeout_s))
        runners = [Runner(kind(order), tell, over, order.timeout_s) for kind in KINDS]
        for runner in runners:
            runner.start()
        while any(runner.is_alive() for runner in runners):
            time.sleep(TELL_EVERY_S)
            outcomes = sum((runner.outcomes for runner in runners), Counter())
            tell({"runs": {one.name: one.runs for one in runners}, "outcomes": outcomes})
    if Watched.late:
        tell({"problem": f"{Watched.late} futures called back again after they were done"})
    tell({"done": True})
    return 0


if __name__ == "__main__":
    sys.exit(main())
