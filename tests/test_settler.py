"""What a client does with the events of its core, whichever thread took them in."""

from __future__ import annotations

import typing

from scaler_cluster.client.settler import Settler
from scaler_cluster.core.client.events import ClientEvent


def test_each_event_has_a_handler() -> None:
    """The settler knows what to do with every kind of event that a client's core hands on."""
    assert set(typing.get_args(ClientEvent)) == Settler._HANDLERS.keys()
