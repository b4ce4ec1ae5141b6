"""Run a graph of tasks: the scheduler passes results on, and only what is wanted comes back.

python examples/graphtask_client.py
"""

from scaler_exec import Client, SchedulerClusterCombo


def inc(i: int) -> int:
    """Return one more."""
    return i + 1


def add(a: int, b: int) -> int:
    """Return the sum."""
    return a + b


def minus(a: int, b: int) -> int:
    """Return the difference."""
    return a - b


GRAPH = {
    "a": 2,
    "b": 2,
    "c": (inc, "a"),  # 3
    "d": (add, "a", "b"),  # 4
    "e": (minus, "d", "c"),  # 1
    "f": add,  # a bare callable is data
}


def main() -> None:
    """Start a cluster, get some keys of the graph, and print them."""
    with SchedulerClusterCombo(n_workers=1) as cluster, Client(cluster.get_address()) as client:
        result = client.get(GRAPH, keys=["a", "b", "c", "d", "e", "f"])
        print(result["e"])
        print({key: value for key, value in result.items() if key != "f"})


if __name__ == "__main__":
    main()
