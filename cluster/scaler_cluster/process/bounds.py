"""How many workers a program wants of its cluster: a line to the supervisor for each change."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from scaler_cluster.wire.messages import Offer

if TYPE_CHECKING:
    from scaler_cluster.process.child import ChildProcess


def tell_bounds(child: ChildProcess, offer: Offer) -> None:
    """Tell a supervisor within which bounds the scheduler may choose."""
    child.tell(json.dumps(asdict(offer)).encode() + b"\n")


class BoundsReader:
    """Reads such lines, which come in parts; a wake-up by a signal among them says nothing."""

    def __init__(self) -> None:
        self._begun = b""

    def read(self, data: bytes) -> list[Offer]:
        """Return what the lines say that have ended."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        texts = (line.lstrip(bytes(range(32))) for line in lines)
        # The number of a signal may be that of a line's end.
        return [_offer(json.loads(text)) for text in texts if text]


def _offer(fields: dict[str, object]) -> Offer:
    offer = Offer(**fields)  # type: ignore[arg-type]
    offer.capabilities = tuple((name, amount) for name, amount in offer.capabilities)
    offer.shared = tuple((name, amount) for name, amount in offer.shared)
    return offer
