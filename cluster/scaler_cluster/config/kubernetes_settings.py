"""The settings of a manager whose units are pods of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from scaler_cluster.config.manager_settings import ManagerSettings
from scaler_cluster.config.option import option
from scaler_cluster.config.values import FILE, TEXT, Kind, choice, whole


def _read_pairs(value: str | Mapping[str, Any]) -> dict[str, str]:
    """Return pairs of texts, as "a=1,b=x" or as a table."""
    if isinstance(value, Mapping):
        pairs = [(str(name), str(what)) for name, what in value.items()]
    else:
        parts = [part.strip().partition("=") for part in value.split(",") if part.strip()]
        if not all(mark for _, mark, _ in parts):
            raise ValueError(f"must be pairs such as cpu=2,memory=4Gi, not {value!r}")
        pairs = [(name.strip(), what.strip()) for name, _, what in parts]
    if not all(name and what for name, what in pairs):
        raise ValueError(f"must have a name and a value in each pair, not {value!r}")
    return dict(pairs)


def _read_label(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", value):
        raise ValueError(f"must be a name as Kubernetes has them, not {value!r}")
    return value


PAIRS = Kind("NAME=VALUE,...", "pairs such as cpu=2,memory=4Gi", (str, dict), _read_pairs)
LABEL = Kind("NAME", "a name", (str,), _read_label)


@dataclass(frozen=True, kw_only=True)
class KubernetesSettings(ManagerSettings):
    """Of a manager whose units are pods of Kubernetes."""

    types: ClassVar[tuple[str, ...]] = ("kubernetes", "k8s_raw")

    pod_image: str = option("the image of the pods, in which scaler-exec is installed", TEXT)
    namespace: str = option("where the pods live", LABEL, default="default")
    kubeconfig_path: str | None = option(
        "a kubeconfig (default: that of the pod in which the manager runs, else KUBECONFIG or "
        "~/.kube/config)",
        FILE,
        default=None,
    )
    workers_per_unit: int = option(
        "how many workers a pod has", whole(1), default=1, also=("workers_per_pod",)
    )
    python: str = option("the interpreter in the image", TEXT, default="python3")
    keys_secret: str | None = option(
        "the Secret whose entry worker.key has the workers' keys", LABEL, default=None
    )
    service_account_name: str | None = option("of the pods", LABEL, default=None)
    image_pull_policy: str | None = option(
        "of the pods", choice("Always", "IfNotPresent", "Never"), default=None
    )
    node_selector: Mapping[str, str] = option(
        "labels that a pod's machine must have", PAIRS, default={}
    )
    resource_requests: Mapping[str, str] = option(
        "what each pod asks for, such as cpu=2,memory=4Gi", PAIRS, default={}
    )
    resource_limits: Mapping[str, str] = option(
        "what each pod may use, such as nvidia.com/gpu=1", PAIRS, default={}
    )
    pod_template: str | None = option(
        "a YAML file with a pod, into which the rest is written: maps are merged, lists replaced",
        FILE,
        default=None,
    )
    delete_grace_period_seconds: int = option(
        "how long a pod that is ended has for it", whole(0), default=30
    )
