"""How a client gives up what it asked for, and leaves."""

from scaler import Client
from scaler.cluster.combo import SchedulerClusterCombo


def main():
    cluster = SchedulerClusterCombo(n_workers=10)
    client = Client(address=cluster.get_address())
    # Unfinished tasks are cancelled, what was sent is dropped; the client goes on.
    client.clear()

    # The client is of no use any more; the cluster runs on.
    client.disconnect()

    cluster.shutdown()


if __name__ == "__main__":
    main()
