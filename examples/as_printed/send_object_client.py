"""A value that is sent once, and stands for itself in several tasks."""

from scaler import Client
from scaler.cluster.combo import SchedulerClusterCombo

large_object = [1, 2, 3, 4, 5]


def query(object_reference, idx):
    return object_reference[idx]


def main():
    cluster = SchedulerClusterCombo(n_workers=1)

    with Client(address=cluster.get_address()) as client:
        # The name is for those who watch; it may be left out.
        large_object_ref = client.send_object(large_object, name="large_object")

        fut1 = client.submit(query, large_object_ref, 0)
        fut2 = client.submit(query, large_object_ref, 1)

        print(fut1.result())
        print(fut2.result())

    cluster.shutdown()


if __name__ == "__main__":
    main()
