"""One task, and many. A scheduler runs at the address."""

import math

from scaler import Client

with Client(address="tcp://127.0.0.1:2345") as client:
    future = client.submit(math.sqrt, 16)
    print(future.result())  # 4

    # In the form of older versions, with a DeprecationWarning.
    results = client.map(math.sqrt, [(i,) for i in range(100)])
    print(sum(results))  # 661.46
