# PYTHON_ARGCOMPLETE_OK
"""``scaler_metrics``: a running cluster for Prometheus."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import guard
from scaler_cluster.config.load import load
from scaler_cluster.config.sections import MetricsSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.ids import SNAPSHOT
from scaler_cluster.process.tokens import chosen_token
from scaler_monitoring.feed import Feed, keys_of
from scaler_monitoring.metrics_server import serving

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "scaler_metrics"
ABOUT = (
    "Serve metrics of a cluster to Prometheus, until Ctrl-C. It may start before the scheduler "
    "and outlives it; the metric scaler_up says whether there is a scheduler."
)
TOKEN_VARIABLE = "SCALER_METRICS_TOKEN"  # noqa: S105
"""The environment variable with a token, where none is given."""
LOOK_S = 10.0
"""How long it waits for the next message, before it waits again."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve metrics until Ctrl-C; return the exit status."""
    return guard(PROGRAM, lambda: _run(load(MetricsSettings, PROGRAM, ABOUT, arguments)))


def _run(settings: MetricsSettings) -> None:
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
    except ImportError:
        raise ConfigError(
            "scaler_metrics needs prometheus_client, which is not installed: "
            "pip install 'scaler-exec[monitor]'"
        ) from None
    from scaler_monitoring.prometheus import ClusterCollector

    collector, registry = ClusterCollector(), CollectorRegistry()
    registry.register(collector)
    token = chosen_token(settings.token, TOKEN_VARIABLE)
    # Snapshots say all that is counted; while nobody else watches, no event is made.
    with (
        Feed(settings.monitor_address, (SNAPSHOT,), keys_of(settings)) as feed,
        serving(
            make_wsgi_app(registry), settings.address, settings.port, settings.tls, token
        ) as port,
    ):
        scheme = "http" if settings.tls is None else "https"
        host = f"[{settings.address}]" if ":" in settings.address else settings.address
        sys.stdout.write(f"metrics at {scheme}://{host}:{port}/metrics\n")
        sys.stdout.flush()
        while True:
            message = feed.next(LOOK_S)
            if message is not None:
                collector.apply(message)


if __name__ == "__main__":
    raise SystemExit(main())
