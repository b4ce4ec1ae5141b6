"""How much one client may have in a scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from scaler_cluster.config.option import Section, option
from scaler_cluster.config.values import nbytes, whole


@dataclass(frozen=True, kw_only=True)
class ClientQuotas(Section):
    """Of a scheduler that limits its clients."""

    max_tasks_per_client: int = option(
        "how many tasks one client may have in the scheduler at once; 0: no limit",
        whole(0),
        default=0,
    )
    max_graphs_per_client: int = option(
        "how many graphs one client may have in the scheduler at once; 0: no limit",
        whole(0),
        default=0,
    )
    max_bytes_per_client: int = option(
        "how large arguments, functions and objects of one client may be together, such as 8GB; "
        "0: no limit",
        nbytes(0),
        default=0,
    )
