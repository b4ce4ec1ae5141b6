"""A call for each worker finds those that are started in place of workers that leave."""

from __future__ import annotations

from scaler_cluster.core.client.roll_call import RollCall
from scaler_cluster.wire import messages as m


def listed(*workers: str, late: tuple[str, ...] = ()) -> m.WorkerList:
    """Return a list of workers, each as "ALIAS HOST NAME"; a name may be missing."""
    rows = [[*one.split(), ""][:3] for one in workers]
    aliases, hosts, names = (tuple(row[at] for row in rows) for at in range(3))
    return m.WorkerList(1, aliases, names, hosts, (1,) * len(rows), late)


def test_the_one_in_its_place_is_asked():
    """It has the name of the one that left, on the same machine; nobody is asked for two."""
    roll = RollCall(listed("a h first", "b h second", "c other first"))
    now = listed("c other first", "d other second", "e h second", "f h first")

    assert roll.heirs(now, ["a", "b"]) == {"a": "f", "b": "e"}
    assert roll.heirs(now, ["a"]) == {"a": None}


def test_workers_without_names_are_told_apart_by_their_machine():
    """As many are found as were started; one that was there before is none of them."""
    roll = RollCall(listed("a h", "b h", "c h"))

    assert roll.heirs(listed("c h", "d h", late=("h",)), ["a", "b"]) == {"a": "d"}
    assert roll.heirs(listed("c h", "d h", "e h"), ["b"]) == {"b": "e"}


def test_one_that_is_to_come_is_waited_for_and_no_other():
    """A machine that is to have fewer workers, or that is gone, starts none."""
    roll = RollCall(listed("a h first", "b gone second"))

    assert roll.heirs(listed(late=("h",)), ["a", "b"]) == {"b": None}
    assert roll.heirs(listed("c h first"), ["a"]) == {"a": "c"}
    # That one may be killed in its turn.
    assert roll.heirs(listed(late=("h",)), ["c"]) == {}
    assert roll.heirs(listed("d h first"), ["c"]) == {"c": "d"}
