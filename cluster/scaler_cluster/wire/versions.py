"""What a peer is told that speaks another version of the protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaler_cluster import __version__
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.checks import is_name

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACES = {name: place for place, name in enumerate(("tag", *m.Hello.__slots__))}
"""Where the fields of a Hello stand, in each version."""
NOBODY = m.Hello("", 0, "", 0, "", release="")
UNDERSTOOD = ("role", "protocol", "python", "pid", "host", "release")
"""What is read in a Hello of another version: enough to say who is refused, and why."""


def is_foreign(item: Sequence[object]) -> bool:
    """Return True if a message, as it is on the wire, is a Hello of another version."""
    if item[0] != m.Hello.tag:
        return False
    protocol = item[PLACES["protocol"]]
    return type(protocol) is int and protocol != m.PROTOCOL_VERSION


def read_foreign(item: Sequence[object]) -> m.Hello:
    """Return what both versions understand of such a Hello."""
    said = {name: item[PLACES[name]] for name in UNDERSTOOD if PLACES[name] < len(item)}
    # Any: each has the type of its field.
    known: dict[str, Any] = {name: one for name, one in said.items() if _is_like(name, one)}
    return replace(NOBODY, **known)


def _is_like(name: str, value: object) -> bool:
    return type(value) is type(getattr(NOBODY, name)) and (type(value) is int or is_name(value))


def difference(who: str, hello: m.Hello, here: str) -> str:
    """Return why ``here``, as "this scheduler", does not accept a peer of another version."""
    release = f"scaler-exec {hello.release}" if hello.release else "of an unknown release"
    return (
        f"The {who} ({release}) speaks protocol {hello.protocol}, {here} "
        f"(scaler-exec {__version__}) {m.PROTOCOL_VERSION}: "
        "install the same version of scaler-exec on both sides."
    )
