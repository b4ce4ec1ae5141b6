"""What a scheduler has to send, and the peers that it forgets once that has been sent."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.wire import messages as m


class Outbox:
    """Collects messages by peer, and peers to forget."""

    def __init__(self) -> None:
        self.sent: defaultdict[type[m.Message], int] = defaultdict(int)
        """How many messages of each kind were ever put in."""
        self.parting: dict[bytes, bool] = {}
        """Peers to forget; True: a session that ended with its worker."""
        self._messages: dict[bytes, list[m.Message]] = {}

    def send(self, peer: bytes, message: m.Message) -> None:
        """Put a message in."""
        self.sent[type(message)] += 1
        messages = self._messages.get(peer)
        if messages is None:
            self._messages[peer] = [message]
        else:
            messages.append(message)

    def part_with(self, peer: bytes, *, with_its_worker: bool = False) -> None:
        """Forget a peer once it has been sent what is in here for it."""
        self.parting[peer] = with_its_worker

    def take(self) -> dict[bytes, list[m.Message]]:
        """Return what is to be sent, by peer."""
        messages, self._messages = self._messages, {}
        return messages

    def take_parting(self, is_known: Callable[[bytes], bool]) -> list[bytes]:
        """Return the peers to forget, but for those that have come back since."""
        if not self.parting:
            return []
        parting, self.parting = self.parting, {}
        return [peer for peer in parting if not is_known(peer)]
