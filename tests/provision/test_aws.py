"""Tasks of ECS and instances of EC2 as units, against moto, with an agent that runs them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shlex
import sys
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from scaler.worker_adapter.ecs import ECSWorkerAdapter
from scaler_cluster.config.aws_settings import EC2Settings, ECSAdapterSettings, ECSSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.provision import aws as module
from scaler_cluster.provision.adapter import CapacityExceededError, WorkerGroupNotFoundError
from scaler_cluster.provision.adapters import make_adapter
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.ec2 import EC2Backend
from scaler_cluster.provision.ecs import ECSBackend
from scaler_cluster.provision.manager_process import offer_of
from scaler_cluster.provision.unit_command import UnitCommand
from scaler_exec import Client
from tests.provision.aws import Agent, ecs_tasks, instances
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
        (partial(ecs_backend, ecs_subnets=()), "one subnet at least"),
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


def test_a_dry_run_says_what_only_ec2_knows() -> None:
    """Unless it was told, a unit has as many workers as its instance has CPUs."""
    about = "# --num-of-workers is 1 here; it will be the number of CPUs of a t3.small, which"
    assert ec2_backend(dry_run=True, instance_type="t3.small").dry_run("mine-1").startswith(about)
    told = ec2_backend(dry_run=True, workers_per_unit=2).dry_run("mine-1")
    assert told.startswith("#!/bin/sh\n")


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


@contextlib.contextmanager
def running(ecs, cluster: str, root: Path):
    """Run what tasks of ECS would run."""
    stop = partial(ecs.stop_task, cluster=cluster, reason="its container ended")

    def listed():
        for arn, line in ecs_tasks(ecs, cluster):
            program = f"{shlex.quote(sys.executable)} -m scaler_cluster.cli.cluster"
            yield arn, line.replace("scaler_cluster", program, 1)

    agent = Agent(root, listed, lambda arn: stop(task=arn))
    try:
        yield agent
    finally:
        agent.close()


def play(agent: Agent, shell, flags, address: str, line: str) -> None:
    """Let a manager work: from none to two, one of which fails under load, and back to none.

    Its id is that of no other test, which may have left units in the service.
    """
    shell.start(f"scaler_scheduler {address}")
    manager = shell.start(
        f"scaler_worker_manager {line} -wmi day --max-workers 2 -his 0.2 -sdc 0.5"
    )
    with Client(address) as client:
        futures = [client.submit(tasks.hold, flags.path(one), flags.path("go")) for one in "ab"]
        flags.wait("a")
        flags.wait("b")
        agent.kill(agent.running[0])
        flags.set("go")
        assert all(future.result(BOUND_S) for future in futures)
        wait_until(lambda: not agent.running, "units that have nothing to do stay")
        assert sum(client.map(abs, range(-100, 0))) == 5050
    assert manager.interrupt() == 0
    wait_until(lambda: not agent.running, "units are left")


@pytest.mark.slow
def test_tasks_come_and_go(aws, network, shell, flags, tmp_path) -> None:
    """Those of ECS run the commands they were given."""
    address = f"tcp://127.0.0.1:{free_port(4) + 1}"
    line = (
        f"aws_raw_ecs {address} --ecs-task-cpu 1 --ecs-cluster e2e "
        f"--ecs-subnets {network['ecs_subnets'][0]} "
        f"--ecs-security-groups {network['ecs_security_groups'][0]}"
    )
    with running(aws("ecs"), "e2e", tmp_path) as agent:
        play(agent, shell, flags, address, line)


@pytest.mark.slow
def test_instances_come_and_go(aws, shell, flags, tmp_path) -> None:
    """Those of EC2 run the user data they were given."""
    address = f"tcp://127.0.0.1:{free_port(4) + 1}"
    line = (
        f"aws_ec2 {address} --workers-per-unit 1 --image-id ami-12c6146b "
        f"--remote-python {sys.executable}"
    )
    ec2, known = aws("ec2"), dict[str, str]()

    def listed():
        for one, script in instances(ec2, "day", known):
            # An instance ends itself at last: not this machine.
            assert script.count("shutdown") == 1
            yield one, script.replace("shutdown -h now", "echo it ends")

    def terminate(one: str) -> None:
        ec2.terminate_instances(InstanceIds=[one])

    with contextlib.closing(Agent(tmp_path, listed, terminate)) as agent:
        play(agent, shell, flags, address, line)


# -- the adapter of version 1.12 ---------------------------------------------------------------


def test_what_a_group_is_told() -> None:
    """Its workers have names; nobody is said to have started it, unless a manager has."""
    settings = ECSAdapterSettings.of(
        scheduler_address=ADDRESS, insecure=True, ecs_subnets=("s",), ecs_task_cpu=2
    )
    command = UnitCommand(settings, "", names={"ecs-1": ("ECS|1", "ECS|2")})
    order = json.loads(ECSBackend(settings, command).dry_run("ecs-1"))
    (override,) = order["overrides"]["containerOverrides"]
    told = {one["name"]: one["value"] for one in override["environment"]}

    assert shlex.split(told["COMMAND"]) == [
        "scaler_cluster", ADDRESS, "--num-of-workers=2", "--worker-names=ECS|1,ECS|2",
        "--insecure",
    ]  # fmt: skip
    assert "startedBy" not in order


@pytest.fixture
def adapter(network):
    """Return an adapter for two tasks of three workers each."""
    made = make_adapter(
        ECSAdapterSettings.of(
            scheduler_address=ADDRESS,
            insecure=True,
            ecs_cluster="adapter",
            ecs_task_cpu=3,
            max_instances=2,
            **network,
        )
    )
    yield made
    made.close()


def test_groups_are_tasks_of_ecs(adapter, aws) -> None:
    """Up to the most instances, until they are shut down, stop by themselves, or all have to go."""
    group, workers = adapter.start()
    assert group.startswith("ecs-")
    assert len(set(workers)) == 3
    assert all(worker.startswith("ECS|") for worker in workers)
    other, _ = adapter.start("mine", "mine-1")
    with pytest.raises(CapacityExceededError):
        adapter.start()
    assert adapter.info() == {
        "worker_groups": [group, other],
        "max_worker_groups": 2,
        "workers_per_group": 3,
        "base_capabilities": {},
    }

    ecs = aws("ecs")
    assert running_of(ecs) == 2
    adapter.shut_down(group)
    with pytest.raises(WorkerGroupNotFoundError):
        adapter.shut_down(group)
    for arn in ecs.list_tasks(cluster="adapter", startedBy="mine")["taskArns"]:
        ecs.stop_task(cluster="adapter", task=arn)
    assert adapter.info()["worker_groups"] == []
    adapter.start()
    adapter.close()
    assert running_of(ecs) == 0


def running_of(ecs) -> int:
    """Return how many tasks run in the adapter's cluster."""
    return len(list(ecs_tasks(ecs, "adapter")))


def test_groups_by_the_methods_of_scalers_class(aws, network, monkeypatch) -> None:
    """It has no argument for security groups, without which moto runs no task."""
    order = ECSBackend._order

    def with_groups(backend: ECSBackend, unit: str) -> dict:
        made = order(backend, unit)
        told = made["networkConfiguration"]["awsvpcConfiguration"]
        told["securityGroups"] = list(network["ecs_security_groups"])
        return made

    monkeypatch.setattr(ECSBackend, "_order", with_groups)
    adapter = ECSWorkerAdapter(
        "tcp://127.0.0.1:8516",
        max_instances=1,
        ecs_cluster="adapter",
        ecs_subnets=network["ecs_subnets"],
    )
    group = asyncio.run(adapter.start_worker_group())
    with pytest.raises(CapacityExceededError):
        asyncio.run(adapter.start_worker_group())
    assert running_of(aws("ecs")) == 1
    asyncio.run(adapter.shutdown_worker_group(group))
    assert running_of(aws("ecs")) == 0
    with pytest.raises(WorkerGroupNotFoundError):
        asyncio.run(adapter.shutdown_worker_group(group))
    adapter._adapter.close()


def test_a_task_that_ecs_does_not_describe_yet_is_there(network, monkeypatch) -> None:
    """It was started a moment ago."""
    made = ecs_backend(**network)
    made.start(["mine-4"])
    with monkeypatch.context() as patch:
        patch.setattr(made, "_listed", lambda: ())
        patch.setattr(made, "_describe", lambda _arns: ())
        assert made.look() == {"mine-4": UnitStatus(reason="ECS does not describe it yet")}
    assert made.look()["mine-4"] == UnitStatus()
    made.stop(["mine-4"])
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_file", [False, True])
def test_groups_come_and_go(aws, network, shell, flags, tmp_path, is_file) -> None:
    """By the commands of version 1.12 or by its file, from no task of ECS to two and back."""
    pytest.importorskip("aiohttp")
    base, cluster = free_port(6), f"come-and-go-{is_file}"
    address, port = f"tcp://127.0.0.1:{base + 1}", base + 5
    url = f"http://127.0.0.1:{port}"
    subnets, groups = network["ecs_subnets"], network["ecs_security_groups"]
    if is_file:
        shell.write(
            "stack.toml",
            f"""
            [scheduler]
            scheduler_address = "{address}"
            adapter_webhook_urls = ["{url}"]
            [ecs_worker_adapter]
            adapter_web_host = "127.0.0.1"
            adapter_web_port = {port}
            ecs_cluster = "{cluster}"
            ecs_subnets = {list(subnets)}
            ecs_security_groups = {list(groups)}
            ecs_task_cpu = 1
            max_instances = 1
            """,
        )
        started = [shell.start("scaler stack.toml")]
    else:
        started = [
            shell.start(
                f"scaler_worker_adapter_ecs {address} --adapter-web-host 127.0.0.1 -p {port} "
                f"--ecs-cluster {cluster} --ecs-task-cpu 1 --max-instances 1 "
                f"--ecs-subnets {','.join(subnets)} --ecs-security-groups {','.join(groups)}"
            ),
            shell.start(f"scaler_scheduler {address} --adapter-webhook-url {url}"),
        ]
    with running(aws("ecs"), cluster, tmp_path) as agent, Client(address) as client:
        future = client.submit(tasks.hold, flags.path("a"), flags.path("go"))
        flags.wait("a")
        (worker,) = [one for one in workers_of(agent) if "ECS|" in one]
        assert "--worker-manager-id=webhook-1" in worker
        flags.set("go")
        assert future.result(BOUND_S)
        assert sum(client.map(abs, range(-100, 0))) == 5050
        if is_file:
            # The adapter ends its group itself.
            client.disconnect()
            assert [one.interrupt() for one in started] == [0]
        wait_until(lambda: not agent.running, "tasks that have nothing to do stay")
    assert [one.err for one in started] == [""] * len(started)


def workers_of(agent: Agent) -> list[str]:
    """Return the command lines that it runs."""
    return [agent.lines[one] for one in agent.running]
