"""Units that are pods of Kubernetes: by the official client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import ConfigError
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.unit_command import MODULE
from scaler_cluster.security.credentials import KEY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scaler_cluster.config.kubernetes_settings import KubernetesSettings
    from scaler_cluster.provision.unit_command import UnitCommand
    from scaler_cluster.wire.messages import Offer

MANAGER_LABEL = "scaler/worker-manager-id"
APP = "scaler-worker"
KEY_ENTRY = "worker.key"
TIMEOUT_S = 30
MISSING, EXISTS = 404, 409
"""What the API answers of a pod that is gone, or that is there already."""


class KubernetesBackend:
    """Makes, lists and deletes pods; each is a unit, and has its name."""

    lifetime_s: float | None = None

    def __init__(self, settings: KubernetesSettings, command: UnitCommand) -> None:
        self._settings = settings
        self._command = command
        self._template = _read_template(settings.pod_template)
        if settings.keys_secret is None and command.keys_text:
            raise ConfigError(
                "the workers need keys: put them into a Secret, by kubectl create secret generic "
                f"scaler-worker --from-file={KEY_ENTRY}=PATH, and name it with --keys-secret"
            )
        self._api: Any = None if settings.dry_run else _connect(settings)

    def offered(self, offer: Offer) -> Offer:
        """Return what the settings offer."""
        return offer

    def start(self, units: Sequence[str]) -> None:
        """Make a pod for each unit."""
        for unit in units:
            _call(
                self._api.create_namespaced_pod,
                self._settings.namespace,
                self.pod(unit),
                known=EXISTS,
            )

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the pods that have the manager's label; those that are over are deleted."""
        listed = _call(
            self._api.list_namespaced_pod,
            self._settings.namespace,
            label_selector=f"{MANAGER_LABEL}={self._command.manager_id}",
        )
        found = {pod.metadata.name: _status_of(pod) for pod in listed.items}
        self._delete([name for name, status in found.items() if status.is_over], grace_s=0)
        return found

    def stop(self, units: Sequence[str]) -> None:
        """Delete pods; each has its time to end."""
        self._delete(units, self._settings.delete_grace_period_seconds)

    def dry_run(self, unit: str) -> str:
        """Return the pod of a unit, as JSON."""
        return json.dumps(self.pod(unit), indent=2)

    def close(self) -> None:
        """Close the connections."""
        if self._api is not None:
            self._api.api_client.close()

    def pod(self, unit: str) -> dict[str, Any]:
        """Return the pod of a unit."""
        settings = self._settings
        container: dict[str, Any] = {
            "name": APP,
            "image": settings.pod_image,
            # Not by a shell: the first process of a pod gets its signals.
            "command": [settings.python, "-m", MODULE, *self._command.arguments(unit)],
        }
        if settings.keys_secret is not None:
            source = {"name": settings.keys_secret, "key": KEY_ENTRY}
            container["env"] = [{"name": KEY_VARIABLE, "valueFrom": {"secretKeyRef": source}}]
        if settings.image_pull_policy is not None:
            container["imagePullPolicy"] = settings.image_pull_policy
        resources = {
            "requests": dict(settings.resource_requests),
            "limits": dict(settings.resource_limits),
        }
        if any(resources.values()):
            container["resources"] = {name: what for name, what in resources.items() if what}
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": settings.delete_grace_period_seconds,
        }
        if settings.service_account_name is not None:
            spec["serviceAccountName"] = settings.service_account_name
        if settings.node_selector:
            spec["nodeSelector"] = dict(settings.node_selector)
        labels = {"app": APP, MANAGER_LABEL: self._command.manager_id}
        made = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": unit, "labels": labels},
            "spec": spec,
        }
        pod = _merged(self._template, made)
        # Of the template's containers, the first one is the worker's.
        first, *others = pod["spec"].get("containers") or [{}]
        pod["spec"]["containers"] = [_merged(first, container), *others]
        return pod

    def _delete(self, units: Sequence[str], grace_s: int) -> None:
        for unit in units:
            _call(
                self._api.delete_namespaced_pod,
                unit,
                self._settings.namespace,
                known=MISSING,
                grace_period_seconds=grace_s,
            )


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return both; of what both have, maps are merged, and else the second one counts."""
    found = dict(below)
    for name, value in above.items():
        other = found.get(name)
        both = isinstance(other, dict) and isinstance(value, dict)
        found[name] = _merged(other, value) if both else value  # type: ignore[arg-type]
    return found


def _read_template(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        import yaml
    except ImportError:
        raise _missing() from None
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("spec", {}), dict):
        raise ConfigError(f"{path} holds no pod")
    return found


def _missing() -> ConfigError:
    return ConfigError(
        "a manager of pods needs the client of Kubernetes: pip install 'scaler-exec[kubernetes]'"
    )


def _connect(settings: KubernetesSettings) -> Any:
    """Return the API of pods; raises ConfigError."""
    try:
        from kubernetes import client, config
    except ImportError:
        raise _missing() from None
    try:
        if settings.kubeconfig_path is not None:
            config.load_kube_config(settings.kubeconfig_path)
        else:
            config.load_config()
    except (config.ConfigException, OSError) as error:
        raise ConfigError(f"no way to a Kubernetes: {error}") from None
    return client.CoreV1Api()


def _call(call: Callable[..., Any], *args: Any, known: int | None = None, **named: Any) -> Any:
    """Return what a call of the API returns; None for the status that is known to be harmless."""
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return call(*args, **named, _request_timeout=TIMEOUT_S)
    except ApiException as error:
        if known is not None and error.status == known:
            return None
        raise BackendError(f"Kubernetes answers {error.status}: {_words(error)}") from None
    except HTTPError as error:
        raise BackendError(f"Kubernetes does not answer: {error}") from None


def _words(error: Any) -> str:
    """Return what an answer says of itself."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)


def _status_of(pod: Any) -> UnitStatus:
    status = pod.status
    states = [one.state for one in status.container_statuses or () if one.state is not None]
    if status.phase in ("Succeeded", "Failed"):
        for ended in (state.terminated for state in states if state.terminated is not None):
            if ended.exit_code:
                why = f"{ended.reason or 'Error'}, exit code {ended.exit_code}"
                return UnitStatus(True, _joined(why, ended.message or ""))
        return UnitStatus(True, _joined(status.reason or "", status.message or ""))
    for waiting in (state.waiting for state in states if state.waiting is not None):
        return UnitStatus(reason=_joined(waiting.reason or "", waiting.message or ""))
    for one in status.conditions or ():
        if one.type == "PodScheduled" and one.status == "False":
            return UnitStatus(reason=_joined(one.reason or "", one.message or ""))
    return UnitStatus()


def _joined(reason: str, message: str) -> str:
    return ": ".join(text for text in (reason, message.strip()) if text)
