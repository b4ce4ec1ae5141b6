"""Writes ``docs/protocol.md`` and ``docs/task-states.md`` from the code.

Run it as ``python docs/make_reference.py``.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

from scaler_cluster.core.lifecycle import ENDS, TRANSITIONS, Event, State
from scaler_cluster.wire import messages

HERE = Path(__file__).parent

INTRODUCTION = """\
# Protocol

<!-- made by docs/make_reference.py -->

Protocol version {version}, over ZeroMQ: the scheduler's ROUTER socket, everyone else's DEALER. One
ZeroMQ message is one *envelope*: its first frame is msgpack, `[incarnation, seq, ack, *messages]`,
a message being `[tag, *fields]`; each buffer of 8 KiB or more is a frame of its own, and its number
stands in the envelope. `seq` counts from 1 (0: nothing but an acknowledgement), `ack` is the last
one received in order; what is not acknowledged is sent again. Both sides must run the same protocol
version and the same minor version of Python: `Hello` says so, `Refused` answers.

A *batch* is the payloads of contiguous tasks: `[ends, base, data]`, where `ends` are 32-bit
little-endian offsets and `base` is where `data` begins among them. Whoever forwards a batch cuts it
by these numbers and never reads the payloads.

| tag | message | fields | meaning |
|---|---|---|---|
"""


def protocol() -> str:
    """Return the reference of all messages."""
    lines = [*INTRODUCTION.format(version=messages.PROTOCOL_VERSION).splitlines()]
    classes = [
        kind
        for kind in vars(messages).values()
        if inspect.isclass(kind)
        and issubclass(kind, messages.Message)
        and kind is not messages.Message
    ]
    for kind in sorted(classes, key=lambda kind: kind.tag):
        names = ", ".join(f"`{one.name}`" for one in fields(kind))  # type: ignore[arg-type]
        meaning = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
        lines.append(f"| {kind.tag} | {kind.__name__} | {names} | {meaning} |")
    return "\n".join(lines) + "\n"


def task_states() -> str:
    """Return the reference of the states of a task."""
    lines = [
        "# States of a task",
        "",
        "<!-- made by docs/make_reference.py -->",
        "",
        "Drawn from `scaler_cluster/core/lifecycle.py`; a move that is not here is impossible.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> READY",
        "    [*] --> WAITING",
    ]
    for start, moves in TRANSITIONS.items():
        by_end: dict[State, list[Event]] = {}
        for event, end in moves.items():
            by_end.setdefault(end, []).append(event)
        for end, events in by_end.items():
            label = ", ".join(event.name.lower() for event in events)
            lines.append(f"    {start.name} --> {end.name}: {label}")
    lines += [f"    {end.name} --> [*]" for end in ENDS]
    lines += ["```", ""]
    return "\n".join(lines)


PAGES = {"protocol.md": protocol, "task-states.md": task_states}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (HERE / name).write_text(make())
