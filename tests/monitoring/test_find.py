"""What Ctrl-K finds, and where links lead."""

from __future__ import annotations

import pytest

from scaler_cluster.wire import feed as f
from scaler_monitoring.dashboard.find import FOUND_MAX, find
from scaler_monitoring.dashboard.links import failure_key, failure_url, function_url, task_url
from scaler_monitoring.model import Model

W1 = b"W1"


def snapshot(seq, *names):
    """Return a snapshot with these functions, and one worker."""
    functions = [f.Function(name, 1) for name in names]
    workers = [f.Worker(W1, b"M", "host", pid=1)]
    return f.Snapshot("run", seq, clock=float(seq), workers=workers, functions=functions)


@pytest.fixture
def model():
    """Return what is known of three functions and a worker."""
    known = Model()
    known.apply(snapshot(1, "do_tasks", "tasks_of", "price & co"), 1.0)
    return known


def test_pages_functions_workers_and_tasks_are_found(model):
    """What begins with a text comes before what has it in it, and a task by its number first."""
    assert [(one.kind, one.name) for one in find(model, " TASKS")] == [
        ("page", "Tasks"), ("function", "tasks_of"), ("function", "do_tasks"),
    ]  # fmt: skip
    assert [one.url for one in find(model, "price")] == ["functions?name=price+%26+co"]
    assert [one.url for one in find(model, model.label(W1))] == [f"workers?worker={W1.hex()}"]
    assert (find(model, "3:17")[0].kind, find(model, "3:17")[0].url) == ("task", "tasks?task=3:17")
    assert find(model, "nothing has this") == []


def test_what_is_found_is_bounded(model):
    """A text that is in very much finds the first of it."""
    model.apply(snapshot(2, *(f"price {n}" for n in range(100))), 2.0)
    assert len(find(model, "price")) == FOUND_MAX


def test_links_bear_any_name():
    """Names of users are data in links, whatever they contain."""
    assert function_url("a&b=<c>") == "functions?name=a%26b%3D%3Cc%3E"
    assert task_url("1:call 3, item 17") == "tasks?task=1:call+3%2C+item+17"
    assert failure_url(failure_key("f", "KeyError")) == "tasks?failure=f~KeyError"
