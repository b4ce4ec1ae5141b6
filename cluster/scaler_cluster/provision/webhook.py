"""Units that an adapter of version 1.12 starts: its worker groups, by HTTP.

An adapter does not list its groups, so the backend knows those alone that it has started. One of
ours says more than the documents have: which groups live, among what it says of itself. And it is
told more, which others pass over: to which manager and unit the workers belong, so that they drain.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.wire.messages import MOST_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.config.webhook_settings import WebhookSettings
    from scaler_cluster.provision.unit_command import UnitCommand
    from scaler_cluster.wire.messages import Offer

INFO = {"action": "get_worker_adapter_info"}
TIMEOUT_S = 30.0
BYTES_MAX = 1 << 20
"""Of an answer."""
UNKNOWN = 404
"""What an adapter answers that does not know a group: it has ended."""
NO_LIMIT = -1


class WebhookBackend:
    """Has the groups of an adapter started and shut down."""

    lifetime_s: float | None = None

    def __init__(self, settings: WebhookSettings, command: UnitCommand) -> None:
        self._url = settings.url
        self._manager_id = command.manager_id
        self._groups: dict[str, str] = {}
        """The id of each unit's group."""

    def start(self, units: Sequence[str]) -> None:
        """Have a group started for each unit."""
        for unit in units:
            answer = self._ask(self._order(unit))
            group = answer.get("worker_group_id")
            if not isinstance(group, str):
                raise BackendError(f"{self._url} names no worker_group_id: {answer}")
            self._groups[unit] = group

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the units whose groups were started and not shut down, and which of them died."""
        if not self._groups:
            return {}
        living = self._ask(INFO).get("worker_groups")
        if not isinstance(living, list):
            return {unit: UnitStatus() for unit in self._groups}
        found = {unit: UnitStatus(group not in living) for unit, group in self._groups.items()}
        for unit, status in found.items():
            if status.is_over:
                del self._groups[unit]
        return found

    def stop(self, units: Sequence[str]) -> None:
        """Have groups shut down."""
        for unit in units:
            if unit in self._groups:
                group = self._groups[unit]
                body = {"action": "shutdown_worker_group", "worker_group_id": group}
                self._ask(body, known=(UNKNOWN,))
                del self._groups[unit]

    def dry_run(self, unit: str) -> str:
        """Return the request that starts a group."""
        return f"POST {self._url}\n{json.dumps(self._order(unit), indent=2)}"

    def offered(self, offer: Offer) -> Offer:
        """Return what an adapter offers, as far as the manager may have it."""
        info = self._ask(INFO)
        try:
            groups, per_unit = int(info["max_worker_groups"]), int(info["workers_per_group"])
            base = {str(name): float(n) for name, n in info.get("base_capabilities", {}).items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BackendError(f"{self._url} says nothing of its groups: {info}") from None
        most = MOST_MAX if groups == NO_LIMIT else groups * per_unit
        return replace(
            offer,
            most=min(most, offer.most),
            least=min(offer.least, most, offer.most),
            per_unit=max(per_unit, 1),
            capabilities=tuple(sorted((base | dict(offer.capabilities)).items())),
        )

    def _order(self, unit: str) -> dict[str, str]:
        action = {"action": "start_worker_group"}
        return action | {"worker_manager_id": self._manager_id, "unit": unit}

    def close(self) -> None:
        """Do nothing: each request has a connection of its own."""

    def _ask(self, body: Mapping[str, str], known: tuple[int, ...] = ()) -> dict[str, Any]:
        """Return what an adapter answers, also if that is one of the ``known`` errors."""
        # The settings let no other scheme pass than http and https.
        request = urllib.request.Request(  # noqa: S310
            self._url,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
                return _read(response.read(BYTES_MAX), self._url)
        except urllib.error.HTTPError as error:
            with error:
                answer = error.read(BYTES_MAX)
            if error.code in known:
                return {}
            why = _reason(answer) or error.reason
            raise BackendError(f"{self._url} answers {error.code}: {why}") from None
        except OSError as error:
            cause: object = error.reason if isinstance(error, urllib.error.URLError) else error
            cause = getattr(cause, "strerror", None) or cause
            raise BackendError(f"{self._url} does not answer: {cause}") from None


def _read(data: bytes, url: str) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise BackendError(f"{url} answers what is no JSON object: {data[:200]!r}")
    return answer


def _reason(data: bytes) -> str:
    """Return what an answer says of an error; empty: nothing."""
    try:
        answer = json.loads(data)
    except ValueError:
        return ""
    return str(answer.get("error", "")) if isinstance(answer, dict) else ""
