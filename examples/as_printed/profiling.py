"""What a task took. A scheduler runs at the address."""

from scaler import Client


def calculate(sec: int):
    return sec * 1


client = Client(address="tcp://127.0.0.1:2345")
fut = client.submit(calculate, 1, profiling=True)

fut.result()

# Microseconds.
fut.profiling_info().duration_us

# Bytes.
fut.profiling_info().peak_memory
