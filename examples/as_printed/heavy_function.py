"""What not to do: a heavy function, submitted again and again. Here it is stored once."""

import functools
import random

from scaler import Client, SchedulerClusterCombo


def lookup(heavy_map: bytes, index: int):
    return index * 1


def main():
    address = "tcp://127.0.0.1:2345"
    cluster = SchedulerClusterCombo(address=address, n_workers=3)

    # Printed with 5 GB.
    big_func = functools.partial(lookup, b"1" * 5_000_000)
    arguments = [random.randint(0, 100) for _ in range(100)]

    with Client(address=address) as client:
        futures = [client.submit(big_func, i) for i in arguments]
        print([fut.result() for fut in futures])

    cluster.shutdown()


if __name__ == "__main__":
    main()
