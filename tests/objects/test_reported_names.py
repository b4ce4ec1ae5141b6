"""Names for the segments of a worker, and which of them have been reported."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from scaler_cluster.ids import segment_number
from scaler_cluster.objects.reported_names import ReportedNames


def test_names_are_reported_by_who_took_them():
    """What another thread still writes is not taken for reported."""
    names = ReportedNames(b"W")
    with ThreadPoolExecutor(1) as other:
        assert names.first == 0
        taken = [next(names), other.submit(next, names).result(), next(names)]
        assert [segment_number(one.encode()) for one in taken] == [0, 1, 2]
        assert names.first == 0
        names.reported()
        assert names.first == 1
        assert segment_number(next(names).encode()) == 3
        other.submit(names.reported).result()
        assert names.first == 3
        names.reported()
        assert names.first == 4


def test_threads_take_different_names():
    """No two threads get the same name."""
    names = ReportedNames(b"W")
    taken: list[str] = []
    threads = [
        threading.Thread(target=lambda: taken.extend(next(names) for _ in range(500)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(taken)) == 2000
