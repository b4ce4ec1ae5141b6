"""Writes ``task-states.md``, and draws the picture of that page, from the scheduler's own table."""

from __future__ import annotations

import ast
import inspect
from html import escape
from itertools import pairwise

from scaler_cluster.core.records import lifecycle
from scaler_cluster.core.records.lifecycle import ENDS, TRANSITIONS, Event, State

PLACES = {
    # The column and row of each state.
    State.WAITING: (0, 1),
    State.READY: (1, 1),
    State.REVOKING: (2, 0),
    State.ASSIGNED: (2, 1),
    State.CANCELLING: (2, 2),
    State.FAILED: (3, 0),
    State.DONE: (3, 1),
    State.CANCELLED: (1, 2),
}
BENDS = {
    # How far an arrow bends to its left, in pixels, if it is not straight.
    (State.WAITING, State.READY): 14,
    (State.READY, State.WAITING): 14,
    (State.WAITING, State.ASSIGNED): 70,
    (State.WAITING, State.FAILED): 118,
    (State.READY, State.ASSIGNED): 14,
    (State.ASSIGNED, State.READY): 14,
    (State.ASSIGNED, State.REVOKING): 14,
    (State.REVOKING, State.ASSIGNED): 14,
    (State.REVOKING, State.CANCELLING): 110,
}
WIDE, HIGH = 120, 44
STEP_X, STEP_Y = 210, 120
LEFT, TOP = 20, 60
STYLE = """\
  <style>
    .page { fill: #fff }
    .box { fill: #eef3fb; stroke: #2f5d9b }
    .end { fill: #eef7ee; stroke: #3b7a3b }
    .way { fill: none; stroke: #555 } .head { fill: #555 }
    rect { stroke-width: 1.5 } text { font: 15px sans-serif; fill: #111; text-anchor: middle }
  </style>
  <marker id="head" class="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8"
    markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z"/></marker>"""
PAGE = """\
# States of a task

<!-- made by docs/make_reference.py -->

The scheduler knows each task in one of these states. The tables below have all moves; any other
move is impossible. All is drawn from `scaler_cluster/core/records/lifecycle.py`.

![The states of a task, and the moves between them](images/task-states.svg)

A task begins as READY, or as WAITING if it depends on tasks that have not returned.

| state | meaning |
|---|---|
{states}

| from | to | by |
|---|---|---|
{moves}

| what happens | that is |
|---|---|
{events}
"""


def task_states() -> str:
    """Return the reference of the states of a task."""
    said = _docs()
    states = [f"| {one.name} | {said['State', one.name]} |" for one in State]
    events = [f"| {_words(one)} | {said['Event', one.name]} |" for one in Event]
    moves = []
    for start, by_event in TRANSITIONS.items():
        for end in dict.fromkeys(by_event.values()):
            by = ", ".join(_words(event) for event, leads_to in by_event.items() if leads_to == end)
            moves.append(f"| {start.name} | {end.name} | {by} |")
    tables = {"states": states, "moves": moves, "events": events}
    return PAGE.format(**{name: "\n".join(rows) for name, rows in tables.items()})


def _words(event: Event) -> str:
    return event.name.lower().replace("_", " ")


def _docs() -> dict[tuple[str, str], str]:
    """Return what stands below each name of the enumerations."""
    said = {}
    for owner in ast.parse(inspect.getsource(lifecycle)).body:
        for node, below in pairwise(getattr(owner, "body", [])):
            if isinstance(node, ast.Assign) and isinstance(below, ast.Expr):
                assert isinstance(owner, ast.ClassDef)
                text = ast.literal_eval(below.value)
                said[owner.name, ast.unparse(node.targets[0])] = " ".join(text.split())
    return said


def picture() -> str:
    """Return the states and the moves between them as an SVG."""
    width, height = 2 * LEFT + 3 * STEP_X + WIDE, TOP + 2 * STEP_Y + HIGH + 50
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
        STYLE,
        f'  <rect class="page" width="{width}" height="{height}" rx="6"/>',
    ]
    for start, by_event in TRANSITIONS.items():
        lines += [_arrow(start, end) for end in dict.fromkeys(by_event.values()) if end != start]
        if start in by_event.values():
            x, y = _middle(start)
            lines.append(_way(f"M{x - 20} {y + 22}c-10 40 50 40 40 2"))
    for state in State:
        x, y = _middle(state)
        kind = "end" if state in ENDS else "box"
        lines.append(
            f'  <rect class="{kind}" x="{x - WIDE // 2}" y="{y - HIGH // 2}" width="{WIDE}" '
            f'height="{HIGH}" rx="8"/><text x="{x}" y="{y + 5}">{escape(state.name)}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def _middle(state: State) -> tuple[int, int]:
    column, row = PLACES[state]
    return LEFT + WIDE // 2 + column * STEP_X, TOP + HIGH // 2 + row * STEP_Y


def _way(path: str) -> str:
    return f'  <path class="way" marker-end="url(#head)" d="{path}"/>'


def _arrow(start: State, end: State) -> str:
    """Return an arrow from the border of a box to that of another."""
    (x1, y1), (x2, y2) = _middle(start), _middle(end)
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    bend = BENDS.get((start, end), 0) * 2
    x, y = (x1 + x2) / 2 + (y2 - y1) / length * bend, (y1 + y2) / 2 - (x2 - x1) / length * bend
    (x1, y1), (x2, y2) = _border(x1, y1, x, y), _border(x2, y2, x, y)
    return _way(f"M{x1} {y1}Q{round(x)} {round(y)} {x2} {y2}")


def _border(x: int, y: int, to_x: float, to_y: float) -> tuple[int, int]:
    """Return where the line from the middle of a box to a point leaves the box."""
    away = max(abs(to_x - x) / (WIDE / 2), abs(to_y - y) / (HIGH / 2))
    return round(x + (to_x - x) / away), round(y + (to_y - y) / away)
