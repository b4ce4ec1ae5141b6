"""What a terminal shows: numbers as text, rows in order, and what fits."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from scaler_cluster.ids import session_label
from scaler_cluster.wire import feed as f
from scaler_monitoring import texts, view
from scaler_monitoring.health import health
from scaler_monitoring.model import Model
from scaler_monitoring.screen import draw

S1, S2 = b"Sab", b"Scd"


def a_snapshot(workers=3, **fields):
    """Return a cluster of two machines, the second of which has not said how it is."""
    rows = [
        f.Worker(
            b"W%d" % n, S1 if n % 2 else S2, "host", pid=100 + n, tasks=n, free=5 - n,
            function="work" if n else "", age_s=float(n),
            cpu=n / 10 if n % 2 else None, rss_bytes=1_000_000 * n if n % 2 else None,
        )
        for n in range(workers)
    ]  # fmt: skip
    machines = [
        f.Machine(S1, "one", 2, 1, lag_s=0.0007, cpu=1.0, free_bytes=10**9, agent_cpu=0.005,
                  agent_rss_bytes=30_000_000),
        f.Machine(S2, "two", 2, 2, silent_s=9.0),
    ]  # fmt: skip
    whole = {
        "scheduler": f.Process(cpu=0.25, rss_bytes=37_100_000, lag_s=0.002, up_s=3700.0),
        "tasks": f.Tasks(1, 2, 3, 4, 53_800, 53_704, 14, 48, moved=3),
        "sent": {"Assign": 200_000, "Results": 9},
        "received": {"Done": 200_000},
        "functions": [f.Function("work", 10, 5, 1, busy_s=3.0, mean_s=0.2)],
        "clients": [f.Client(1, "host", 77, submitted=10, done=5, failed=1)],
    }
    return f.Snapshot("run", 1, time=1.0, interval_s=1.0, machines=machines, workers=rows,
                      **whole | fields)  # fmt: skip


def a_model(*messages):
    model = Model()
    for message in messages or (a_snapshot(),):
        model.apply(message, 0.0)
    return model


def page(model, width=150, height=None, order=None, top=0, now=0.0):
    """Return the lines of a drawn page."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=height or 25, color_system=None)
    console.print(draw(model, order or view.Order(), now, console, height, top))
    return [line.rstrip() for line in out.getvalue().splitlines()]


# -- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "value", "text"),
    [
        (view.percent, 0.005, "0.5%"),
        (view.percent, None, "-"),
        (view.size, 130.1 * 1024**2, "130.1m"),
        (view.size, 999, "999"),
        (view.size, 0, "0"),
        (view.size, None, "-"),
        (view.duration, 0.0007, "700us"),
        (view.duration, 0.0015, "1.5ms"),
        (view.duration, 3.14, "3.1s"),
        (view.duration, 250, "4m10s"),
        (view.duration, 7500, "2h05m"),
        (view.duration, None, "-"),
        (view.whole, 53704, "53,704"),
        (texts.plain, "f\x1b[31m\n", "f?[31m?"),
    ],
)
def test_numbers_as_text(make, value, text):
    """Numbers have the unit that fits; unknown ones are a dash, and control characters go."""
    assert make(value) == text


@given(st.floats(0, 1e18) | st.none())
def test_numbers_stay_short(value):
    """A number stays short, whatever its size."""
    assert len(view.size(value)) <= 9
    if value is None or value < 1e6:
        assert len(view.duration(value)) <= 7


# -- order -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(view.KEYS))
def test_every_key_sorts(key):
    """Each key of both generations sorts, reversed when pressed again; unknowns come last."""
    order = view.Order(view.KEYS["n"] if key == "c" else view.KEYS["c"])
    rows = view.worker_rows(a_snapshot(6))

    assert order.press(key)
    value = view.KEYS[key].value
    sorted_rows = order.sort(rows)
    once = [value(row) for row in sorted_rows if value(row) is not None]
    assert order.press(key)
    again = [value(row) for row in order.sort(rows) if value(row) is not None]
    assert once == sorted(once, reverse=not view.KEYS[key].is_text)
    assert again == sorted(once, reverse=view.KEYS[key].is_text)
    unknown = [value(row) for row in sorted_rows if value(row) is None]
    assert [value(row) for row in sorted_rows] == once + unknown


def test_other_keys_do_nothing():
    """Other keys change nothing, and the busiest worker comes first until a key is pressed."""
    order = view.Order()

    assert not order.press("Z")
    assert (order.column.name, order.descending) == ("cpu", True)


# -- words -------------------------------------------------------------------------------------


def test_a_silent_machine_is_told_of():
    """The lag of a silent machine's workers says when it was last heard."""
    lag = next(column for column in view.COLUMNS if column.name == "lag")

    assert lag.show((9.0, 0.001)) == "(9.0s) 1ms"
    assert lag.show((0.0, 0.0007)) == "700us"


def test_how_many_there_are():
    """The number of workers is told, with those that are still to come."""
    assert view.totals(a_snapshot()) == "Total 2 manager(s) with 3 worker(s), 1 pending"


def test_two_machines_of_one_host_are_told_apart():
    """Two machines of one host are told apart by the beginning of their ids."""
    names = view.manager_names([f.Machine(S1, "host"), f.Machine(S2, "host"), f.Machine(b"", "x")])

    assert len(set(names.values())) == 3
    assert names[b""] == "x"


def test_troubles_are_told():
    """Silence, gaps, left-out rows and demands that nobody meets are told as troubles."""
    first = a_snapshot()
    second = a_snapshot(
        left_out={"workers": 7},
        demands=[f.Demand("gpu=1", 3, 2.0), f.Demand("x", 1, None), f.Demand("", 1, 65.0)],
        refused="A cluster was refused.",
    )
    second.seq = 4
    model = a_model(first, second)

    assert [one.kind for one in health(a_model(), 1.0)] == ["silent_machine"]
    assert [one.text for one in health(model, 100.0)] == [
        "the scheduler was heard 1m40s ago",
        "A cluster was refused.",
        "3 tasks wait for a worker with gpu=1: there has been none for 2.0s",
        "1 task waits for a worker: there has been none for 1m05s",
        "2 messages of the feed were missed",
        "the machine two was heard 9.0s ago",
        "7 workers are not shown",
    ]


def test_managers_are_told():
    """How many workers they are to have, how their units are, and why some did not come."""
    snapshot = a_snapshot(
        managers=[
            f.Manager(
                "cloud", "host", "slurm", 9, 7, 0, 20, 7, 2, 1, 3, "no\x1b[2Jroom", 5400.0, 65.0
            ),
            f.Manager("vm:7", "vm", "embedded", 2, 2),
        ]
    )

    assert view.managers(snapshot) == [
        ("cloud (slurm)", "9", "7", "7", "2", "1", "3", "1.50", "1m05s"),
        ("vm:7 (embedded)", "2", "2", "0", "0", "0", "0", "0.00", "-"),
    ]
    trouble = health(a_model(snapshot), 1.0)[0]
    assert trouble.text.startswith("the manager cloud gets no workers: no")
    assert "\x1b" not in trouble.text


def test_troubles_are_few():
    """Of many silent machines and unmet demands only some are named."""
    snapshot = a_snapshot(demands=[f.Demand("x" * 1000, 3, 2.0)] * 30)
    snapshot.machines = [f.Machine(b"%d" % n, f"host{n}", silent_s=9.0) for n in range(30)]
    told = health(a_model(snapshot), 1.0)
    unmet, silent = (
        [one.text for one in told if one.kind == kind]
        for kind in ("unplaced_tasks", "silent_machine")
    )

    assert silent[0] == "the machine host0 was heard 9.0s ago"
    assert silent[-1] == f"{30 - view.TROUBLES_MAX} more machines are silent"
    assert len(unmet) == len(silent) == view.TROUBLES_MAX + 1
    assert max(map(len, unmet)) < 2 * texts.CHARS_MAX


def test_bytes_are_read_where_there_is_room():
    """Bytes stand with a space and the whole unit where there is room."""
    sizes = (None, 999, 1000, 37.1 * 2**20, 2.0**60)

    assert [view.binary(one) for one in sizes] == [
        "-", "999 B", "1.0 KiB", "37.1 MiB", "1048576.0 TiB",
    ]  # fmt: skip


def test_names_are_short():
    """Long names of a worker and its host are cut, and the process id stays."""
    worker = f.Worker(b"W", name="n" * 9999, pid=7)

    assert texts.worker_name(worker).endswith("n…|7")
    assert len(texts.worker_name(worker)) < 2 * texts.CHARS_MAX


@pytest.mark.parametrize("kind", [kind for kind in f.EVENT_KINDS.values()])  # noqa: C416
def test_every_event_can_be_told(kind):
    """Every event has a line of text, or is one that is not told."""
    lines = view.news(a_model(a_snapshot(), f.Events("run", 1, 0.0, {}, [kind(at=0.0)])), 9)

    assert len(lines) <= 1


def test_a_death_is_told_in_a_line():
    """A death is told in one line, with its reason and what the worker ran."""
    died = f.WorkerDied(0.0, b"W", S1, "host", 7, "", 1, 5, "work", signal=11)
    line = view.news(a_model(a_snapshot(), f.Events("run", 1, 0.0, {}, [died])), 1)[0]

    assert line.endswith("worker 7|host died: signal 11, running 1:5 work")


def test_a_death_for_memory_is_told_with_peak_and_limit():
    """What the worker had at most, and what it was allowed, or why the kernel killed it."""
    exceeded = "its memory of 215 MB exceeded the limit of 200 MB per worker"
    killed = "out of memory: the kernel killed it, as memory was short"
    died = f.WorkerDied(out_of_memory=True, signal=9, peak_rss_bytes=1 << 20, reason=exceeded)

    assert view.cause(died) == f"out of memory, with 1.0 MiB: {exceeded}"
    died.reason, died.peak_rss_bytes = killed, None
    assert view.cause(died) == killed


def test_what_an_operator_did_is_told_in_a_line():
    """Who it was, what was done to what, and how much that met."""
    done = [
        f.Operated(0.0, "operator:ann", "pause", "worker red", 1),
        f.Operated(0.0, "operator:ann", "cancel", "client 3", 1200),
    ]
    lines = view.news(a_model(a_snapshot(), f.Events("run", 1, 0.0, {}, [*done])), 2)

    assert lines[0].endswith(" operator:ann has cancelled client 3: 1,200 tasks")
    assert lines[1].endswith(" operator:ann has paused worker red: 1 worker")


def test_a_paused_worker_is_marked():
    """Whether it runs something or not."""
    snapshot = a_snapshot()
    for worker in snapshot.workers[:2]:
        worker.is_paused = True

    rows = view.worker_rows(snapshot)

    assert [row.doing for row in rows] == ["(paused)", "work (paused)", "work"]
    assert "work (paused)" in "\n".join(page(a_model(snapshot), 80))


# -- pages -------------------------------------------------------------------------------------


def test_everything_is_on_the_page():
    """The page has the documented sections, columns and rows."""
    lines = page(a_model(), width=200)
    text = "\n".join(lines)

    titles = "scheduler object_manager task_manager scheduler_sent scheduler_received"
    assert lines[0].replace("|", " ").split() == titles.split()
    assert "Shortcuts: manager[g] worker[n] agt_cpu[C]" in text
    header = next(line for line in lines if line.startswith("manager"))
    names = (
        "manager worker agt_cpu agt_rss [cpu] rss os_rss_free free sent queued suspended lag ITL"
    )
    assert header.split()[:13] == names.split()
    row = next(line for line in lines if line.startswith("one "))
    cells = "one 101|host 0.5% 28.6m 10.0% 976.6k 953.7m 4 1 0 0 700us 110"
    assert row.split()[:13] == cells.split()
    for cell in "53,704", "25.0%", "client_manager", "77|host", "200,000":
        assert cell in text


def test_what_made_most_objects_is_on_the_page():
    """The three functions with most, over all clients; what clients stored counts as theirs."""
    owners = [
        f.Owner(1, "", 1, 4 << 20), f.Owner(1, "load", 1, 1 << 20), f.Owner(2, "load", 1, 5 << 20),
        f.Owner(1, "a" * 50, 1, 3 << 20), f.Owner(1, "least", 1, 1),
    ]  # fmt: skip
    told = view.sections(a_model(a_snapshot(owners=owners)))["object_manager"]

    assert told[-3:] == [("by load", "6.0m"), ("by clients", "4.0m"), (f"by {'a' * 19}…", "3.0m")]


def test_the_sorted_column_is_bracketed():
    """The column by which the rows are ordered is in brackets."""
    order = view.Order()
    order.press("F")

    assert any("[os_rss_free]" in line for line in page(a_model(), order=order))


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("height", [10, 24, 60])
def test_a_page_fits(width, height):
    """The page is not wider than its terminal, and hardly ever higher."""
    functions = [f.Function(f"function_{n}" * 3, n, n) for n in range(50)]
    lines = page(a_model(a_snapshot(500, functions=functions)), width, height)

    assert max(map(len, lines)) <= width
    assert len(lines) <= max(height, 35)


def test_a_narrow_terminal_keeps_what_matters():
    """A narrow terminal keeps each worker's name, load and task."""
    header = next(line for line in page(a_model(), width=80) if "[cpu]" in line.split())

    assert {"worker", "[cpu]", "rss", "sent", "age"} <= set(header.split())
    assert "ITL" not in header


def test_a_low_terminal_shows_functions():
    """A terminal of 80 x 24 shows tasks, what is wrong, workers and functions, and no more."""
    functions = [f.Function(f"function_{n}", 9, n) for n in range(9)]
    lines = page(a_model(a_snapshot(9, functions=functions)), 80, 24)
    text = "\n".join(lines)

    assert len(lines) <= 24
    for what in ("task_manager", "the machine two was heard", "|host", "function_0"):
        assert what in text


def test_a_page_scrolls():
    """The page begins with the worker that was asked for, and ends with the last one."""
    model = a_model(a_snapshot(100, functions=[]))
    order = view.Order()
    order.press("w")

    first = "\n".join(page(model, height=40, order=order))
    later = "\n".join(page(model, height=40, order=order, top=50))
    end = "\n".join(page(model, height=40, order=order, top=99))
    assert ("199|host" in first, "149|host" in first) == (True, False)
    assert ("199|host" in later, "149|host" in later) == (False, True)
    assert "100|host" in end


def test_names_do_nothing_to_a_terminal():
    """Markup and control characters in names of users do nothing to the terminal."""
    functions = [f.Function("[bold red]f[/] \x1b[2J", 1)]

    assert "[bold red]f[/] ?[2J" in "\n".join(page(a_model(a_snapshot(functions=functions))))


@given(
    st.integers(1, 1 << 40),
    st.integers(0, 1 << 20),
    st.integers(0, (1 << 40) - 100),
    st.integers(1, 99),
)
def test_what_a_task_is_called_names_it(session, call, item, count):
    """Whoever types or follows the name of a task, or of several, is led to the first of them."""
    first = (call << 40) + item

    assert view.task_number(view.task_name(session, first, count)) == (
        session_label(session),
        first,
    )


@pytest.mark.parametrize("name", ["", "17", "3:", "3:x", "3:call 2", "call 2, item 1", "\u0663:1"])
def test_other_text_names_no_task(name):
    """What is no name of a task is not taken for one."""
    assert view.task_number(name) is None
