"""Pods as units: what they are made of, what is said of them, and a map that starts from none."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from scaler_cluster.config.kubernetes_settings import KubernetesSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.provision import kubernetes as module
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.kubernetes import KubernetesBackend
from scaler_cluster.provision.unit_command import UnitCommand
from scaler_exec import Client
from tests.provision.kubelet import Kubernetes
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, free_port, wait_until

client = pytest.importorskip("kubernetes.client")
ADDRESS = "tcp://192.0.2.1:8516"


def backend(*, insecure: bool = True, **given) -> KubernetesBackend:
    made = KubernetesSettings.of(
        **{"scheduler_address": ADDRESS, "pod_image": "me/scaler", "insecure": insecure} | given
    )
    return KubernetesBackend(made, UnitCommand(made, "mine"))


def test_a_pod_is_what_the_settings_say() -> None:
    """Its command is the workers' own, so that they get its signals; its key is a Secret's."""
    pod = json.loads(
        backend(
            insecure=False,
            keys=os.environ["SCALER_KEYS"],
            keys_secret="keys",
            dry_run=True,
            workers_per_unit=4,
            namespace="team",
            image_pull_policy="always",
            service_account_name="runner",
            node_selector="disk=ssd",
            resource_requests={"cpu": 4},
            resource_limits="memory=8Gi,nvidia.com/gpu=1",
        ).dry_run("mine-1")
    )
    (container,) = pod["spec"].pop("containers")

    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "mine-1",
            "labels": {"app": "scaler-worker", "scaler/worker-manager-id": "mine"},
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "serviceAccountName": "runner",
            "nodeSelector": {"disk": "ssd"},
        },
    }
    source = {"secretKeyRef": {"name": "keys", "key": "worker.key"}}
    assert container == {
        "name": "scaler-worker",
        "image": "me/scaler",
        "imagePullPolicy": "Always",
        "command": [
            "python3", "-m", "scaler_cluster.cli.cluster", ADDRESS, "--num-of-workers=4",
            "--worker-manager-id=mine", "--unit=mine-1",
        ],
        "env": [{"name": "SCALER_KEY", "valueFrom": source}],
        "resources": {
            "requests": {"cpu": "4"},
            "limits": {"memory": "8Gi", "nvidia.com/gpu": "1"},
        },
    }  # fmt: skip


def test_a_template_is_merged(tmp_path) -> None:
    """Maps are merged, lists replaced; its first container becomes the worker's."""
    path = tmp_path / "pod.yaml"
    path.write_text(
        "metadata: {labels: {team: blue}}\n"
        "spec:\n  tolerations: [{key: gpu}]\n  containers:\n"
        "  - {name: x, volumeMounts: [{name: data, mountPath: /data}]}\n  - {name: helper}\n"
    )
    pod = backend(pod_template=str(path), dry_run=True).pod("mine-1")

    assert pod["metadata"]["labels"]["team"] == "blue"
    assert pod["metadata"]["labels"]["app"] == "scaler-worker"
    assert pod["spec"]["tolerations"] == [{"key": "gpu"}]
    worker, helper = pod["spec"]["containers"]
    assert (worker["name"], worker["volumeMounts"][0]["name"]) == ("scaler-worker", "data")
    assert helper == {"name": "helper"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"resource_limits": "cpu"}, "must be pairs such as"),
        ({"resource_limits": "cpu="}, "a name and a value in each"),
        ({"namespace": "Team"}, "namespace must be a name"),
        ({"insecure": False, "keys": os.environ["SCALER_KEYS"]}, "kubectl create secret generic"),
        ({"kubeconfig_path": "/nowhere"}, "no way to a Kubernetes"),
        ({"pod_template": "/nowhere"}, "cannot read /nowhere"),
        ({"pod_template": "/dev/null"}, "holds no pod"),
    ],
)
def test_settings_that_cannot_work(given, message) -> None:
    """They are told before any pod is made."""
    with pytest.raises(ConfigError, match=message):
        backend(**given)


def test_without_the_client(monkeypatch) -> None:
    """The error names the extra."""
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(ConfigError, match=r"pip install 'scaler-exec\[kubernetes\]'"):
        backend()


def pod(phase: str, **status) -> object:
    """Return a pod as the client has it."""
    states = status.pop("states", ())
    containers = [
        client.V1ContainerStatus(image="", image_id="", name="", ready=False, restart_count=0,
                                 state=client.V1ContainerState(**one))
        for one in states
    ]  # fmt: skip
    return client.V1Pod(
        status=client.V1PodStatus(phase=phase, container_statuses=containers, **status)
    )


@pytest.mark.parametrize(
    ("some", "status"),
    [
        (pod("Running"), UnitStatus()),
        (pod("Pending"), UnitStatus()),
        (
            pod("Pending", states=[{"waiting": client.V1ContainerStateWaiting(
                reason="ImagePullBackOff", message="no such image")}]),
            UnitStatus(reason="ImagePullBackOff: no such image"),
        ),
        (
            pod("Pending", conditions=[client.V1PodCondition(
                type="PodScheduled", status="False", reason="Unschedulable", message="0/3")]),
            UnitStatus(reason="Unschedulable: 0/3"),
        ),
        (pod("Succeeded"), UnitStatus(True)),
        (
            pod("Failed", reason="Evicted", message="low on memory"),
            UnitStatus(True, "Evicted: low on memory"),
        ),
        (
            pod("Failed", states=[{"terminated": client.V1ContainerStateTerminated(
                exit_code=137, reason="OOMKilled")}]),
            UnitStatus(True, "OOMKilled, exit code 137"),
        ),
    ],
)  # fmt: skip
def test_what_a_pod_says(some, status) -> None:
    """Why it waits, or why it ended, is the unit's reason."""
    assert module._status_of(some) == status


@pytest.fixture
def kubernetes(tmp_path):
    """Return what serves pods and runs their commands; it is not a real Kubernetes."""
    (tmp_path / "k8s").mkdir()
    made = Kubernetes(tmp_path / "k8s")
    yield made
    made.close()


def test_pods_are_made_listed_and_deleted(kubernetes) -> None:
    """Another manager of the same id finds them; what is over is deleted once it was told."""
    made = backend(kubeconfig_path=str(kubernetes.kubeconfig), python="true")
    kubernetes.is_full = True
    made.start(["mine-1"])
    kubernetes.is_full = False
    made.start(["mine-1", "mine-2"])
    other = backend(kubeconfig_path=str(kubernetes.kubeconfig))
    found: dict[str, UnitStatus] = {}
    wait_until(lambda: found.update(other.look()) or found["mine-2"].is_over, "it does not end")

    assert found["mine-1"] == UnitStatus(reason="Unschedulable: 0/1 nodes are available")
    assert list(kubernetes.pods) == ["mine-1"]
    other.stop(["mine-1", "mine-9"])
    assert not kubernetes.pods
    made.close()
    other.close()


def test_what_the_api_refuses(kubernetes) -> None:
    """Its message is the reason."""
    made = backend(kubeconfig_path=str(kubernetes.kubeconfig))
    kubernetes.refusal = 403, "exceeded quota"
    with pytest.raises(BackendError, match="Kubernetes answers 403: exceeded quota"):
        made.start(["mine-1"])
    kubernetes.refusal = None
    assert made.look() == {}
    made.close()


@pytest.mark.slow
def test_pods_come_and_go(kubernetes, shell, flags) -> None:
    """From no pod to two, one of which dies under load, and back to none; nothing is lost."""
    address = f"tcp://127.0.0.1:{free_port(4) + 1}"
    shell.start(f"scaler_scheduler {address}")
    manager = shell.start(
        f"scaler_worker_manager kubernetes {address} -wmi mine --max-workers 2 -his 0.2 -sdc 0.5 "
        f"--pod-image me/scaler --python {sys.executable} "
        f"--kubeconfig-path {kubernetes.kubeconfig}"
    )
    with Client(address) as one:
        futures = [one.submit(tasks.hold, flags.path(name), flags.path("go")) for name in "ab"]
        flags.wait("a")
        flags.wait("b")
        kubernetes.kill(min(kubernetes.pods))
        flags.set("go")
        assert all(future.result(BOUND_S) for future in futures)
        wait_until(lambda: not kubernetes.pods, "pods that have nothing to do stay")
        assert sum(one.map(abs, range(-100, 0))) == 5050
    assert manager.interrupt() == 0
    assert not kubernetes.pods


DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.yaml")), ids=lambda path: path.name)
def test_the_manifests_are_what_kubernetes_knows(path) -> None:
    """Each document has the fields of its kind, by the models of the client."""
    yaml = pytest.importorskip("yaml")
    for document in yaml.safe_load_all(path.read_text()):
        kind = getattr(client, f"V1{document['kind']}")
        unknown = set(document) - set(kind.attribute_map.values())
        assert not unknown
        known = client.ApiClient()._ApiClient__deserialize(document, kind)
        assert known.metadata.name
