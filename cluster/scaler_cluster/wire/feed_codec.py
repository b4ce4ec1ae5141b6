"""The feed and its bytes.

A message is two frames: its topic, and a msgpack map. A *table* in it is a map of the names of its
columns (``fields``) and of its ``rows``; an event is its kind and its values, and ``fields`` names
these by kind.
"""

from __future__ import annotations

from dataclasses import fields
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgpack

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import EVENTS, LOGS, PROFILE, SNAPSHOT
from scaler_cluster.wire import feed as f

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Message: TypeAlias = "f.Snapshot | f.Events | f.Logs | f.Samples"
_Whole = TypeVar("_Whole", f.Snapshot, f.Logs, f.Samples)

FEED_BYTES_MAX = 1 << 28
"""The snapshot of a scheduler with a hundred thousand workers is a tenth of that."""

_BY_NAME = {one.__name__: one for one in f.RECORDS}
_COLUMNS = {
    kind: [one.name for one in fields(kind)] for kind in (*f.RECORDS, *f.EVENT_KINDS.values())
}
_VALUES = {one: attrgetter(*names) for one, names in _COLUMNS.items()}
_TYPES = {
    kind: {one.name: str(one.type) for one in fields(kind)}
    for kind in (*_COLUMNS, f.Snapshot, f.Events, f.Logs, f.Samples)
}


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and isfinite(value))


def _is_map(value: Any, kinds: tuple[type, ...]) -> bool:
    return type(value) is dict and all(
        type(name) is str and type(number) in kinds for name, number in value.items()
    )


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: type(value) is int,
    "float": _is_number,
    "bool": lambda value: type(value) is bool,
    "str": lambda value: type(value) is str,
    "bytes": lambda value: type(value) is bytes,
    "int | None": lambda value: value is None or type(value) is int,
    "float | None": lambda value: value is None or _is_number(value),
    "dict[str, int]": lambda value: _is_map(value, (int,)),
    "dict[str, float]": lambda value: _is_map(value, (int, float)),
}
# Names and texts come from user code, and may hold what is no valid Unicode.
_packer = msgpack.Packer(use_bin_type=True, autoreset=True, unicode_errors="backslashreplace")


def encode(message: Message) -> list[bytes]:
    """Return the frames of a message."""
    if isinstance(message, f.Snapshot):
        return [SNAPSHOT, _packer.pack(_map_of_tables(message))]
    if isinstance(message, f.Logs):
        return [LOGS, _packer.pack(_map_of_tables(message))]
    if isinstance(message, f.Samples):
        return [PROFILE, _packer.pack(_map_of_tables(message))]
    return [EVENTS, _packer.pack(_events_map(message))]


def decode(frames: Sequence[bytes]) -> Message:
    """Return the message that these frames hold.

    Raises RemoteProtocolError, and nothing else, if they hold none of this FEED_VERSION.
    """
    try:
        topic, body = frames
        content = msgpack.unpackb(body, raw=False, strict_map_key=True)
        _check_version(content["version"])
        if topic == SNAPSHOT:
            return _read_tables(f.Snapshot, content)
        if topic == LOGS:
            return _read_tables(f.Logs, content)
        if topic == PROFILE:
            return _read_tables(f.Samples, content)
        if topic == EVENTS:
            return _read_events(content)
    except RemoteProtocolError:
        raise
    except Exception as error:
        raise RemoteProtocolError(f"undecodable feed: {error!r:.200}") from error
    raise RemoteProtocolError(f"a feed of another topic: {bytes(topic)!r:.50}")


def _check_version(version: object) -> None:
    if version != f.FEED_VERSION:
        raise RemoteProtocolError(
            f"The scheduler publishes version {version!r:.20} of the feed, this reads "
            f"{f.FEED_VERSION}: install the same version of scaler-exec on both sides."
        )


def as_dict(record: Any) -> dict[str, Any]:
    """Return a snapshot, a row or an event by its fields; ids as text, for people and for JSON."""
    return {name: _plain(getattr(record, name)) for name in _TYPES[type(record)]}


def _plain(value: Any) -> Any:
    if type(value) is bytes:
        return value.hex()
    if type(value) is list:
        return [as_dict(one) for one in value]
    return as_dict(value) if type(value) in _TYPES else value


def _table(rows: Sequence[Any], kind: type[Any]) -> dict[str, object]:
    return {"fields": _COLUMNS[kind], "rows": list(map(_VALUES[kind], rows))}


def _map_of_tables(message: f.Snapshot | f.Logs | f.Samples) -> dict[str, object]:
    content: dict[str, object] = {"version": f.FEED_VERSION}
    for name, kind in _TYPES[type(message)].items():
        value = getattr(message, name)
        if kind.startswith("list["):
            value = _table(value, _BY_NAME[kind[5:-1]])
        elif kind in _BY_NAME:
            value = dict(zip(_COLUMNS[type(value)], _VALUES[type(value)](value), strict=True))
        content[name] = value
    return content


def _events_map(message: f.Events) -> dict[str, object]:
    kinds: dict[type[f.Event], None] = dict.fromkeys(map(type, message.events))
    return {
        "version": f.FEED_VERSION,
        "run": message.run,
        "seq": message.seq,
        "clock": message.clock,
        "skipped": message.skipped,
        "fields": {kind.kind: _COLUMNS[kind] for kind in kinds},
        "events": [[one.kind, *_VALUES[type(one)](one)] for one in message.events],
    }


def _read_tables(message: type[_Whole], content: dict[str, Any]) -> _Whole:
    found: dict[str, Any] = {}
    for name, kind in _TYPES[message].items():
        if name not in content:
            continue
        value = content[name]
        if kind.startswith("list["):
            record, columns = _BY_NAME[kind[5:-1]], value["fields"]
            value = [_read(record, columns, row) for row in value["rows"]]
        elif kind in _BY_NAME:
            value = _read(_BY_NAME[kind], list(value), list(value.values()))
        else:
            _check(name, kind, value)
        found[name] = value
    return message(**found)


def _read_events(content: dict[str, Any]) -> f.Events:
    columns, events = content["fields"], []
    for kind, *values in content["events"]:
        if kind in f.EVENT_KINDS:
            events.append(_read(f.EVENT_KINDS[kind], columns[kind], values))
    found = {name: content[name] for name in ("run", "seq", "clock", "skipped") if name in content}
    for name, value in found.items():
        _check(name, _TYPES[f.Events][name], value)
    return f.Events(**found, events=events)


def _read(record: type[Any], columns: Sequence[str], values: Sequence[Any]) -> Any:
    kinds = _TYPES[record]
    found = {}
    for name, value in zip(columns, values, strict=True):
        if name in kinds:
            _check(name, kinds[name], value)
            found[name] = value
    return record(**found)


def _check(name: str, kind: str, value: object) -> None:
    if not _CHECKS[kind](value):
        raise RemoteProtocolError(f"{name} of the feed is no {kind}: {value!r:.50}")
