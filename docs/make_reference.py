"""Writes the pages and pictures of ``PAGES`` from the code.

Run it as ``python docs/make_reference.py``.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import command_reference
import state_picture

from scaler_cluster import ids
from scaler_cluster.config import manager_types
from scaler_cluster.config.manager_settings import ManagerSettings, UnitSettings
from scaler_cluster.config.sections import (
    LogsSettings,
    MetricsSettings,
    ProfileSettings,
    RecordSettings,
    ReportSettings,
    SchedulerSettings,
    StorageSettings,
    TopSettings,
    TraceSettings,
    WebSettings,
)
from scaler_cluster.config.worker_settings import ClusterSettings
from scaler_cluster.core.delivery import channel
from scaler_cluster.wire import checks, codec, feed, options
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from scaler_cluster.config.option import Option

HERE = Path(__file__).parent

INTRODUCTION = """\
# Protocol

<!-- made by docs/make_reference.py -->

This is version {m.PROTOCOL_VERSION} of the protocol, which runs over ZeroMQ. The scheduler has a
ROUTER socket. Every other process is a *peer* and has a DEALER socket. The routing id of that
socket is the *peer id*: one letter for the role (C, W, S, O, M) and {ids.PEER_RANDOM_BYTES} random
bytes. {page}

On one machine, at an `ipc://` address, scheduler, clients and workers speak ZMTP themselves, over a
Unix socket. A DEALER or ROUTER of ZeroMQ at the other end sees no difference.

An object storage has a ROUTER socket as well, at the address that Welcome and Returned name. A peer
says Hello there too, in an envelope with what it wants; only a scheduler is answered with a Hello.

A peer id is a secret: whoever knows it can speak in the name of that peer. Others are told its
*alias*: the letter, and BLAKE2b of {ids.ALIAS_BYTES} bytes of the id. The name of a segment is the
alias of the peer that wrote it, `-`, the number of the segment, `{ids.TAIL}`, and {ids.TAIL_BYTES}
random bytes, all in hexadecimal.

## Keys

At TCP, sockets use CURVE (RFC 26). A peer has a pair of keys, and knows the key of whom it connects
to. [security.md](security.md) says where keys lie; a file of keys has lines `role name public`, and
the secret as a fourth word on its own line; lines that begin with `#` are comments. The address of
an object storage that does not have the scheduler's key ends in `#` and the key in Z85.

The role of a peer's key says what its Hello may be:

| role of the key | role in the Hello |
|---|---|
| `client` | `client`, without a `worker` |
| `worker` | `manager`, `supervisor`, `worker`; `storage`, `client` with one of the last two |
| `scheduler` | `storage` without a `supervisor`; `scheduler`, to a storage that runs by itself |
| `owner` (loopback addresses) | all of these |

The scheduler drops a peer that says another Hello, and takes nothing in that comes with another key
in a peer's name.

## Envelopes

One ZeroMQ message is one *envelope*. Its first frame is msgpack, at most
{codec.HEADER_BYTES_MAX:,} bytes: `[incarnation, to, seq, ack, *messages]`. The first envelope of
a peer, which begins with Hello, has a first frame of at most {codec.HELLO_BYTES_MAX:,} bytes. A
first frame of more than {codec.PLAIN_BYTES_MAX:,} bytes has at most {codec.PARTS_MAX:,} values:
each name, number and list counts as one. Senders split messages that are longer together into
several envelopes. A message is `[tag, *fields]` with all fields, in order. A buffer of
{codec.FRAME_BYTES:,} bytes or more is a separate frame, and the number of the frame, counted from
1, takes its place in the message. An
envelope has at most {codec.FRAMES_MAX:,} frames.

- `incarnation` is a number other than 0 that a peer keeps as long as it is connected (here a random
  one). If it changes, the peer has started over: its first envelope has `seq` 1 and begins with
  Hello.
- `to` is the incarnation of the receiver, or 0 as long as the sender does not know it. If the
  receiver has started over since, it drops the envelope; a scheduler then answers with Unknown.
- `seq` counts the envelopes of one direction from 1. An acknowledgement, or an envelope that
  contains Unknown, has `seq` 0 and is not counted.
- `ack` is the last `seq` that was received in order. A receiver that has nothing to send
  acknowledges after {channel.ACKNOWLEDGE_AFTER_S:g} s, and after {channel.ACKNOWLEDGE_EVERY}
  envelopes at the latest, with `seq` 0. An envelope that arrives out of order is kept until the gap
  is filled, and acknowledged at once, with a Gap. A duplicate is dropped.
- The sender repeats the envelopes that a Gap names. If nothing is acknowledged within
  {channel.PROBE_AFTER_S:g} s, it sends a *probe*, an envelope without messages that has a `seq`, or
  the same probe again after twice that time, up to {channel.PROBE_AFTER_MAX_S:g} s. As long as the
  peer has not been heard, it repeats the first envelope instead. So nothing is sent twice because
  a link is slow.
- If a peer sends what the protocol forbids, the scheduler drops the peer and answers it with
  Unknown until it says Hello. Before that, a client gets a Goodbye, whose reason says what was
  wrong.

## Values

| type | in msgpack | bounds |
|---|---|---|
| int | integer | 0 to {ids.TASK_ID_MAX} |
| float | number of seconds | 0 to {checks.SECONDS_MAX:g} |
| bool | boolean | |
| str in Hello | string | {ids.NAME_CHARS_MAX} characters |
| str | string; lone surrogates are allowed | {checks.TEXT_BYTES_MAX:,} characters |
| bytes | binary | {ids.SEGMENT_NAME_BYTES_MAX} bytes; a function's digest has \
{ids.FUNCTION_ID_BYTES} |
| Buffer | binary, or the number of a frame | |
| Batch | `[ends, base, data]`, see below | one payload or more |
| tuple[bytes, ...] | array of names of objects or segments, each binary of up to \
{ids.SEGMENT_NAME_BYTES_MAX} bytes | {codec.OBJECTS_MAX:,} |
| tuple[int, ...] | array of numbers of bytes | {codec.OBJECTS_MAX:,} |
| dict[str, Any] | map of texts to texts, numbers, booleans or nil | |
| Capabilities | array of `[name, amount]` | {codec.CAPABILITIES_MAX} |
| TaskOptions | nil for the defaults, or the array of the fields below | |
| StorageEndpoint | array of the fields below | {codec.HOMES_MAX} in a Welcome |

A *batch* holds the payloads of contiguous tasks. `ends` (Buffer) is a list of 32-bit little-endian
offsets, one for the end of each payload. `data` (Buffer) holds the bytes of the payloads. `base` is
the offset at which `data` begins. To forward part of a batch, the scheduler cuts it at these
offsets and never reads the payloads.

A *task* is a number, unique within its session. Its upper bits number the call that made it (0 for
single tasks, 1 and up for each map or graph). Its lower {ids.CALL_BITS} bits count within that
call.
"""
NAMED_CALLS = """\

## Named calls

Payloads are pickles of Python, but for those of *named calls*, which every language can make and
answer. [other-languages.md](other-languages.md) shows both sides.

| payload | in a named call |
|---|---|
| of a Function | msgpack of `[name]`: its first byte is 0x91, where a pickle's is 0x80 |
| of a task whose `call` is {m.CALL_NAMED} | msgpack of `[args, kwargs]`, an array and a map |
| of its result, in Done and Results | msgpack of the value |
| of its failure, in Erred and Failed | empty |

- Values are nil, booleans, integers of 64 bits, floats, strings in UTF-8, binary, and arrays and
  maps of these; the keys of maps are strings. There are no extension types.
- `name` has at most {ids.FUNCTION_NAME_CHARS_MAX} characters. What it means is for the worker to
  say. Workers in Python take it for `module:function`. The Function has the name a second time, in
  its field `name`, for people.
- A failure says in `detail` what was raised: `type`, `message` and `traceback`, in the words of its
  language. A worker that cannot read a call answers FAILED_DESERIALIZE, one that cannot send the
  result FAILED_RESULT; `message` then is a whole sentence.
- All of a payload is in the message: named calls have no objects and no segments. Graphs have no
  nodes of this kind.
- A peer without Python says so with an empty `python` in its Hello. Such a worker gets only tasks
  that demand a capability. It answers a call that is not a named one with FAILED_DESERIALIZE.
"""
PAGE = "[Writing a worker](writing-a-worker.md) describes what a worker does."
KINDS = (m.TaskOptions, m.StorageEndpoint)


FEED = """\
# The feed

<!-- made by docs/make_reference.py -->

This is version {version} of the feed, which a scheduler publishes for monitors;
[monitoring.md](monitoring.md) describes the monitors. An XPUB socket at the monitor
address sends messages of two frames to SUB sockets: a topic, `snapshot`, `events`, `logs` or
`profile`, and a msgpack map. Each map has `version`, besides the fields below.

- A monitor that subscribes to `snapshot` gets a snapshot at once, and then one each `interval_s`. A
  monitor that subscribes to `events` gets everything that happens from then on, in batches. One
  that subscribes to `logs` gets what tasks print and log from then on. While no monitor subscribes
  to a topic, the scheduler makes no messages for it. It sends no message twice.
- While a monitor subscribes to `profile`, workers look at the stacks of their tasks, and the
  scheduler publishes once a second, as Samples, what they saw.
- `seq` counts the messages of a topic. If there is a gap, the monitor has missed messages: a
  monitor that reads too slowly, or is cut off, loses messages and slows nobody down. If `run`
  changes, there is another scheduler, with another clock: `seq` and all counts begin anew.
- A *table* is a map of `fields`, the names of its columns, and `rows`, lists of values. An event is
  a list of its kind and its values; `fields` of the message has the names of these values, by kind.
  Monitors go by names and ignore names that they do not know, because fields may be added without a
  new version.
- Contiguous tasks are one event. If there are more than some hundred events of one kind a second,
  only every n-th event is published, and `skipped` says how many were left out. Counts, such as
  `done`, are always exact.
- A task is named by its client's `session` and its number. Times are seconds of the scheduler's
  clock; `clock` and `time` of a snapshot are the same moment. CPU is counted in whole CPUs. Ids of
  workers, machines and objects are bytes: aliases, which nobody can use. nil means that a value is
  not known.

"""


def feed_reference() -> str:
    """Return the reference of the feed."""
    docs = _docs_of_fields(feed)
    lines = FEED.format(version=feed.FEED_VERSION).splitlines()
    events = [kind for kind in feed.EVENT_KINDS.values()]  # noqa: C416
    parts = (
        ("Messages", (feed.Snapshot, feed.Events, feed.Logs, feed.Samples)),
        ("What is in snapshots, logs and samples", feed.RECORDS),
        ("Events", events),
    )
    for title, kinds in parts:
        section: list[str] = []
        for kind in kinds:
            name = f"`{kind.kind}`" if issubclass(kind, feed.Event) else kind.__name__
            section += [f"### {name}", "", _one_line(inspect.getdoc(kind) or ""), ""]
            section += ["| field | type | meaning |", "|---|---|---|"]
            for one in fields(kind):
                shown = str(one.type)
                for before, after in TYPES.items():
                    shown = shown.replace(before, after)
                meaning = docs.get((kind.__name__, one.name), "")
                section.append(f"| `{one.name}` | {shown} | {meaning} |")
            section.append("")
        lines += [f"## {title}", "", *_contents(section, "### "), "", *section]
    return "\n".join(lines).rstrip() + "\n"


TYPES = {
    "list[Event]": "list of events",
    "list[": "table of ",
    "dict[str, ": "map of names to ",
    "]": "",
    " | None": " or nil",
}


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def protocol() -> str:
    """Return the reference of all messages."""
    said = _docs_of_fields(options) | _docs_of_fields(m)
    lines = INTRODUCTION.format(
        m=m, ids=ids, checks=checks, codec=codec, channel=channel, page=PAGE
    ).splitlines()
    for struct in KINDS:
        lines += _section(struct, struct.__name__, said)
    lines += NAMED_CALLS.format(m=m, ids=ids).splitlines()
    messages: list[str] = []
    classes = [
        kind
        for kind in vars(m).values()
        if inspect.isclass(kind) and issubclass(kind, m.Message) and kind is not m.Message
    ]
    for kind in sorted(classes, key=lambda kind: kind.tag):
        messages += _section(kind, f"{kind.tag} {kind.__name__}", said)
    lines += ["", "## Messages", "", *_contents(messages, "### "), *messages]
    lines += ["", "## Numbers and names", "", "| name | value | meaning |", "|---|---|---|"]
    for name, value in vars(m).items():
        if name.startswith(("CALL_", "FAILED_", "INPUT_", "NOT_RUN")):
            lines.append(f"| {name} | `{value!r}` | {said.get(('', name), '')} |")
    return "\n".join(lines) + "\n"


def _section(kind: type, title: str, said: dict[tuple[str, str], str]) -> list[str]:
    lines = ["", f"### {title}", "", (inspect.getdoc(kind) or "").replace("``", "`")]
    if fields(kind):
        lines += ["", "| field | type | meaning |", "|---|---|---|"]
    for one in fields(kind):
        what = said.get((kind.__name__, one.name), "")
        lines.append(f"| `{one.name}` | {str(one.type).replace(' | ', ' or ')} | {what} |")
    return lines


def _docs_of_fields(module: ModuleType) -> dict[tuple[str, str], str]:
    """Return what stands below each field, by class and name, and below each constant."""
    said = {}
    tree = ast.parse(inspect.getsource(module))
    for owner, body in [("", tree.body)] + [
        (node.name, node.body) for node in tree.body if isinstance(node, ast.ClassDef)
    ]:
        for node, below in pairwise(body):
            if isinstance(node, ast.AnnAssign):
                target: ast.expr = node.target
            elif isinstance(node, ast.Assign):
                target = node.targets[0]
            else:
                continue
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if is_text and isinstance(target, ast.Name):
                text = str(below.value.value)  # type: ignore[attr-defined]
                said[owner, target.id] = " ".join(text.replace("``", "`").split())
    return said


SETTINGS = """\
# Settings

<!-- made by docs/make_reference.py -->

For each command, a table lists the settings: the key in a file, the flags, the default and the
meaning. A setting that is *accepted, without effect* belongs to the Scaler system.
[configuration.md](configuration.md) explains how to set them.

A size is a number of bytes, or a text with a unit: `"2GB"`, `"512 MiB"`, `"1.5 GiB"`, `"64k"`.
1 kB is 1000 bytes, 1 MB is 1000 kB, and so on with GB, TB and PB. 1 KiB is 1024 bytes, 1 MiB is
1024 KiB, and so on with GiB, TiB and PiB. Upper and lower case mean the same, and the space and
the `B` may be left out. `memory_limit` and `object_memory_limit` of `ScalerExecutor` are sizes too.
"""


MANAGERS = """\
## `[[worker_manager]]`

A manager has workers started as they are wanted: [managers.md](managers.md). All types have these
settings; what `scaler_cluster` has besides is passed on to the workers.
"""


def settings() -> str:
    """Return the reference of all settings."""
    lines: list[str] = []
    for kind in (
        SchedulerSettings,
        ClusterSettings,
        StorageSettings,
        TopSettings,
        MetricsSettings,
        RecordSettings,
        LogsSettings,
        TraceSettings,
        ReportSettings,
        ProfileSettings,
        WebSettings,
    ):
        lines += ["", f"## `[{kind.names[0]}]`", "", *_table(kind.options())]
    common = {one.name: one for one in ManagerSettings.options()}
    lines += ["", *MANAGERS.splitlines(), "", *_table(common.values())]
    for name in manager_types.MANAGERS:
        made = manager_types.settings_of_type(name)
        own = [one for one in made.options() if common.get(one.name) != one]
        title = f'### `[[worker_manager]]` with `type = "{name}"`'
        lines += ["", title, "", (made.__doc__ or "").splitlines()[0]]
        if own:
            lines += ["", *_table(own)]
    workers = {one.name: one for one in UnitSettings.options()}
    for name in manager_types.TABLES:
        table = manager_types.settings_of_table(name, {}) or UnitSettings
        own = [one for one in table.options() if workers.get(one.name) != one]
        about = f"{(table.__doc__ or '').splitlines()[0]} Also the settings of workers above."
        lines += ["", f"## `[{name}]`", "", about, "", *_table(own)]
    return "\n".join([SETTINGS.rstrip(), "", *_contents(lines, "## "), *lines]) + "\n"


def _contents(lines: Iterable[str], mark: str) -> list[str]:
    """Return a list of links to the headings among the lines of a page."""
    titles = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
    return ["In this page: " + ", ".join(f"[{title}](#{_anchor(title)})" for title in titles) + "."]


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _table(options: Iterable[Option]) -> list[str]:
    """Return settings as the rows of a table."""
    lines = ["| key | flags | default | meaning |", "|---|---|---|---|"]
    places = iter(("first", "second"))
    for one in options:
        flags = f"`{' '.join(one.flags)}`"
        if one.is_positional:
            flags = f"the {next(places)} argument"
        about, _, unset = one.help.replace("%%", "%").partition(" (default: ")
        default = one.by_default or unset.removesuffix(")")
        if one.default is MISSING:
            default = "must be given"
        elif one.default is False:
            default = "false"
        about = about.replace("|", "\\|")
        lines.append(f"| `{one.name}` | {flags} | {default} | {about} |")
    return lines


PAGES = {
    "protocol.md": protocol,
    "feed.md": feed_reference,
    "settings.md": settings,
    "command-lines.md": command_reference.command_lines,
    "task-states.md": state_picture.task_states,
    "images/task-states.svg": state_picture.picture,
}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (HERE / name).write_text(make())
