"""Tasks of ECS and instances of EC2 as units, against moto, with an agent that runs them."""

from __future__ import annotations

import base64
import json
import os
import shlex
import sys
import urllib.request
from functools import partial

import pytest

from scaler_cluster.config.aws_settings import EC2Settings, ECSSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.provision import aws as module
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.ec2 import EC2Backend
from scaler_cluster.provision.ecs import ECSBackend
from scaler_cluster.provision.manager_process import offer_of
from scaler_cluster.provision.unit_command import UnitCommand
from scaler_exec import Client
from tests.provision.aws import Agent, ecs_tasks
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, free_port, wait_until

pytest.importorskip("boto3")
moto = pytest.importorskip("moto.server")
ADDRESS = "tcp://192.0.2.1:8516"


@pytest.fixture(scope="module")
def server():
    """Return moto's server, which answers as AWS does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
        made = moto.ThreadedMotoServer(port=0, verbose=False)
        made.start()
        host, port = made.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "x")
        # Else each look at a task would bring it nearer to its end.
        transition = {"progression": "manual", "times": 1_000_000}
        body = json.dumps({"model_name": "ecs::task", "transition": transition}).encode()
        url = f"http://{host}:{port}/moto-api/state-manager/set-transition"
        urllib.request.urlopen(urllib.request.Request(url, body, method="POST")).close()
        yield made
        made.stop()


@pytest.fixture
def aws(server):
    """Return what makes clients of services."""
    import boto3

    made = []

    def client(name: str):
        made.append(boto3.client(name, region_name="us-east-1"))
        return made[-1]

    yield client
    for one in made:
        one.close()


@pytest.fixture
def network(aws):
    """Return a subnet and a security group."""
    ec2 = aws("ec2")
    (subnet, *_) = ec2.describe_subnets()["Subnets"]
    (group, *_) = ec2.describe_security_groups()["SecurityGroups"]
    return {"ecs_subnets": (subnet["SubnetId"],), "ecs_security_groups": (group["GroupId"],)}


def ecs_backend(**given) -> ECSBackend:
    made = ECSSettings.of(
        **{"scheduler_address": ADDRESS, "insecure": True, "ecs_subnets": ("s",)} | given
    )
    return ECSBackend(made, UnitCommand(made, "mine"))


def ec2_backend(**given) -> EC2Backend:
    made = EC2Settings.of(
        **{"scheduler_address": ADDRESS, "insecure": True, "image_id": "ami-12c6146b"} | given
    )
    return EC2Backend(made, UnitCommand(made, "mine"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(ecs_backend, insecure=False, keys=os.environ["SCALER_KEYS"]), "--keys-secret-arn"),
        (partial(ecs_backend, aws_access_key_id="x"), "go together"),
        (partial(ecs_backend, aws_profile="nobody"), "nobody"),
        (partial(ec2_backend, python_version="3.13"), "give image_id, or"),
        (partial(ec2_backend, image_id=None), "give image_id, or"),
        (
            partial(ec2_backend, image_id=None, python_version="3.13", requirements_txt="/x"),
            "cannot read /x",
        ),
        (
            partial(
                ec2_backend, image_id=None, python_version="3.13", requirements_txt=os.devnull
            ),
            "does not name scaler-exec",
        ),
    ],
)  # fmt: skip
def test_settings_that_cannot_work(make, message) -> None:
    """They are told before anything is started."""
    with pytest.raises(ConfigError, match=message):
        make()


def test_without_boto3(monkeypatch) -> None:
    """The error names the extra."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ConfigError, match=r"pip install 'scaler-exec\[aws\]'"):
        module.clients(ECSSettings.of(scheduler_address=ADDRESS, ecs_subnets=("s",)), "ecs")


def test_what_a_task_is_told() -> None:
    """By the contract of the image; its workers are as many as its CPUs."""
    order = json.loads(ecs_backend(dry_run=True, ecs_task_cpu=2).dry_run("mine-1"))
    (override,) = order["overrides"]["containerOverrides"]
    told = {one["name"]: one["value"] for one in override["environment"]}

    assert shlex.split(told["COMMAND"]) == [
        "scaler_cluster", ADDRESS, "--num-of-workers=2", "--worker-manager-id=mine",
        "--unit=mine-1", "--insecure",
    ]  # fmt: skip
    assert told["PYTHON_REQUIREMENTS"] == "scaler-exec"
    assert (order["launchType"], order["startedBy"]) == ("FARGATE", "mine")


def test_what_an_instance_runs(tmp_path) -> None:
    """A plain one installs what is required; each ends with its workers."""
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("scaler-exec\nnumpy\n")
    script = ec2_backend(
        insecure=False,
        keys=os.environ["SCALER_KEYS"],
        image_id=None,
        python_version="3.13",
        requirements_txt=str(requirements),
        dry_run=True,
    ).user_data("mine-1")

    assert script.startswith("#!/bin/sh\ntrap 'shutdown -h now' EXIT\nset -e\n")
    assert "scaler-exec\nnumpy\nEND\n" in script
    assert "\nexport SCALER_KEY='worker worker " in script
    assert script.splitlines()[-1].startswith("/opt/scaler/bin/python -m scaler_cluster.cli.")
    own = ec2_backend(dry_run=True, remote_python="/opt/python").user_data("mine-1")
    assert "curl" not in own
    assert own.splitlines()[-1].startswith("/opt/python -m ")


def test_tasks_of_ecs(aws, network) -> None:
    """What they need is made; another manager finds them; one that stopped says why."""
    made = ecs_backend(keys_secret_arn="arn:secret", **network)
    assert made.look() == {}
    made.start(["mine-1", "mine-2"])
    definition = aws("ecs").describe_task_definition(taskDefinition="scaler-task-definition")
    (container,) = definition["taskDefinition"]["containerDefinitions"]
    assert container["secrets"] == [{"name": "SCALER_KEY", "valueFrom": "arn:secret"}]
    assert made.look() == {"mine-1": UnitStatus(), "mine-2": UnitStatus()}

    other = ecs_backend(**network)
    other.look()
    other.stop(["mine-1", "mine-9"])
    assert made.look() == {
        "mine-1": UnitStatus(True, "the manager mine ends it"),
        "mine-2": UnitStatus(),
    }
    other.start(["mine-3"])
    for one in (made, other):
        one.close()


def test_what_a_request_is_refused_with() -> None:
    """The words of the answer are the reason."""
    from botocore.exceptions import ClientError, EndpointConnectionError

    told = {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}
    with (
        pytest.raises(BackendError, match="ECS runs no task: ThrottlingException: Rate exceeded"),
        module.asking("ECS runs no task"),
    ):
        raise ClientError(told, "RunTask")
    with (
        pytest.raises(BackendError, match="EC2 lists no instances: Could not connect"),
        module.asking("EC2 lists no instances"),
    ):
        raise EndpointConnectionError(endpoint_url="https://x")


def test_instances_of_ec2(aws) -> None:
    """They have the manager's tag, by which another one finds them, and as many workers as CPUs."""
    made = ec2_backend(instance_type="m5.xlarge", max_workers=-1, instance_tags="team=blue")
    settings = EC2Settings.of(scheduler_address=ADDRESS, image_id="x", max_workers=-1)
    assert made.offered(offer_of(settings)).per_unit == 4
    made.start(["mine-1", "mine-2"])
    other = ec2_backend()
    assert other.look() == {"mine-1": UnitStatus(), "mine-2": UnitStatus()}

    ec2 = aws("ec2")
    (instance,) = [
        one
        for each in ec2.describe_instances()["Reservations"]
        for one in each["Instances"]
        if {"Key": "scaler:unit", "Value": "mine-1"} in one["Tags"]
    ]
    assert {"Key": "team", "Value": "blue"} in instance["Tags"]
    data = ec2.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")[
        "UserData"
    ]["Value"]
    assert "--num-of-workers=4" in base64.b64decode(data).decode()
    other.stop(["mine-1", "mine-9"])
    found = made.look()
    assert (found["mine-1"].is_over, found["mine-2"].is_over) == (True, False)
    for one in (made, other):
        one.close()


def test_a_plain_instance_is_amazons_newest_linux(aws) -> None:
    """Its image is found by its name."""
    made = ec2_backend()
    image = aws("ec2").describe_images(ImageIds=[made._newest_image()])["Images"][0]
    assert image["Name"].startswith("al2023-ami-2023.")
    made.close()


@pytest.mark.slow
def test_tasks_come_and_go(aws, network, shell, flags, tmp_path) -> None:
    """From no task of ECS to two, one of which dies under load, and back to none."""
    address = f"tcp://127.0.0.1:{free_port(4) + 1}"
    shell.start(f"scaler_scheduler {address}")
    manager = shell.start(
        f"scaler_worker_manager aws_raw_ecs {address} -wmi mine --max-workers 2 -his 0.2 -sdc 0.5 "
        f"--ecs-task-cpu 1 --ecs-cluster e2e --ecs-subnets {network['ecs_subnets'][0]} "
        f"--ecs-security-groups {network['ecs_security_groups'][0]}"
    )
    ecs = aws("ecs")
    stop = partial(ecs.stop_task, cluster="e2e", reason="its container ended")

    def listed():
        for arn, line in ecs_tasks(ecs, "e2e"):
            program = f"{shlex.quote(sys.executable)} -m scaler_cluster.cli.cluster"
            yield arn, line.replace("scaler_cluster", program, 1)

    agent = Agent(tmp_path, listed, lambda arn: stop(task=arn))
    try:
        with Client(address) as client:
            futures = [client.submit(tasks.hold, flags.path(one), flags.path("go")) for one in "ab"]
            flags.wait("a")
            flags.wait("b")
            agent.kill(agent.running[0])
            flags.set("go")
            assert all(future.result(BOUND_S) for future in futures)
            wait_until(lambda: not agent.running, "tasks that have nothing to do stay")
            assert sum(client.map(abs, range(-100, 0))) == 5050
        assert manager.interrupt() == 0
        wait_until(lambda: not agent.running, "tasks are left")
    finally:
        agent.close()
