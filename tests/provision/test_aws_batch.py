"""Workers whose tasks are jobs of AWS Batch: moto's server, and an agent that runs each job."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from scaler_cluster.config.proxy_settings import BatchSettings
from scaler_cluster.errors import ClusterUnreachableError, ConfigError, RemoteCallError
from scaler_cluster.provision import batch_job
from scaler_cluster.provision.aws_batch import BatchRunner
from scaler_cluster.provision.remote import RemoteCall
from scaler_exec import Client, UnpicklableResultError
from tests.provision.aws import Agent
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, environment, free_port, wait_until

boto3 = pytest.importorskip("boto3")
moto = pytest.importorskip("moto.server")
REGION, ACCOUNT = "us-east-1", "123456789012"
LOGS = "/aws/batch/job"
COMMAND = [sys.executable, "-m", batch_job.__name__]
COMMAND += [
    word
    for name in ("task_id", "payload", "compressed", "s3_bucket", "s3_prefix", "s3_key")
    for word in (f"--{name}", f"Ref::{name}")
]
pytestmark = pytest.mark.slow


@pytest.fixture
def aws(monkeypatch):
    """Return clients of moto's server, where there is all that a proxy needs."""
    from moto.batch_simple.models import BatchSimpleBackend
    from moto.core.config import default_user_config

    def keep(self, include_start_attempt, job) -> None:
        self.backend._jobs[job.job_id] = job
        job.log_stream_name = job._stream_name

    # Else jobs would succeed at once, and nobody could run them.
    monkeypatch.setattr(BatchSimpleBackend, "_mark_job_as_finished", keep)
    monkeypatch.setitem(default_user_config["batch"], "use_docker", False)
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    made = {name: boto3.client(name) for name in ("batch", "ec2", "iam", "logs", "s3")}
    moto_reset(host, port)
    _provide(made)
    yield made
    for one in made.values():
        one.close()
    server.stop()


def moto_reset(host: str, port: int) -> None:
    """Forget everything: what the servers of other tests have made is in this process."""
    import urllib.request

    url = f"http://{host}:{port}/moto-api/reset"
    urllib.request.urlopen(urllib.request.Request(url, b"", method="POST")).close()


def _provide(made) -> None:
    trust = '{"Version": "2012-10-17", "Statement": []}'
    role = made["iam"].create_role(RoleName="r", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    place = made["batch"].create_compute_environment(
        computeEnvironmentName="place", type="UNMANAGED", state="ENABLED", serviceRole=role
    )["computeEnvironmentArn"]
    order = [{"order": 1, "computeEnvironment": place}]
    made["batch"].create_job_queue(
        jobQueueName="queue", state="ENABLED", priority=1, computeEnvironmentOrder=order
    )
    made["batch"].register_job_definition(
        jobDefinitionName="job",
        type="container",
        containerProperties={"image": "x", "vcpus": 1, "memory": 512, "command": COMMAND},
    )
    made["s3"].create_bucket(Bucket="bucket")
    made["logs"].create_log_group(logGroupName=LOGS)


class Container:
    """What runs the jobs, as an agent of ECS would."""

    def __init__(self, root: Path, logs) -> None:
        self._root = root
        self._logs = logs
        self.ran: list[str] = []
        self._agent = Agent(root, self._listed, self._ended)
        self.close = self._agent.close

    @property
    def running(self) -> list[str]:
        return self._agent.running

    @staticmethod
    def jobs():
        from moto.batch.models import batch_backends

        found = batch_backends[ACCOUNT][REGION]._jobs
        return {key: one for key, one in list(found.items()) if "size" not in one.array_properties}

    def _listed(self):
        for key, job in self.jobs().items():
            if job.stop and not job.job_stopped:
                job._mark_stopped(success=False)
            if job.job_stopped:
                continue
            told = job.parameters
            command = [told.get(one.removeprefix("Ref::"), one) for one in COMMAND]
            index = job.array_properties.get("index", "")
            variables = f"AWS_BATCH_JOB_ID={key} AWS_BATCH_JOB_ARRAY_INDEX={index}"
            script = f"exec > {self._file(key)}.log 2>&1; {variables} {shlex.join(command)}"
            yield key, f"{script}; echo $? > {self._file(key)}.status"

    def _file(self, key: str) -> str:
        return str(self._root / key.replace(":", "-"))

    def _ended(self, key: str) -> None:
        job = self.jobs()[key]
        self.ran.append(key)
        job.exit_code = int(Path(f"{self._file(key)}.status").read_text())
        if job.exit_code:
            job.job_stopped_reason = "Essential container in task exited"
            where = {"logGroupName": LOGS, "logStreamName": job.log_stream_name}
            self._logs.create_log_stream(**where)
            lines = Path(f"{self._file(key)}.log").read_text().splitlines()
            events = [
                {"timestamp": int(time.time() * 1000), "message": one} for one in lines if one
            ]
            self._logs.put_log_events(**where, logEvents=events)
        job._mark_stopped(success=not job.exit_code)


@pytest.fixture
def container(aws, tmp_path, monkeypatch):
    """Return what runs the jobs."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    (tmp_path / "jobs").mkdir()
    made = Container(tmp_path / "jobs", aws["logs"])
    yield made
    made.close()


@contextmanager
def workers(shell, count: int = 20):
    """Start a scheduler and a proxy; yield a client."""
    address = f"tcp://127.0.0.1:{free_port(4)}"
    shell.start(f"scaler_scheduler {address}")
    shell.start(
        f"scaler_worker_manager aws_hpc {address} --job-queue queue --job-definition job"
        f" --s3-bucket bucket -mcj {count}"
    )
    with Client(address) as client:
        yield client


def objects(aws) -> list[str]:
    """Return what lies in the bucket."""
    found = aws["s3"].list_objects_v2(Bucket="bucket").get("Contents", [])
    return [one["Key"] for one in found]


def test_tasks_are_jobs(aws, container, shell) -> None:
    """One task is a job; several are an array; nothing is left in the bucket."""
    with workers(shell) as client:
        assert client.submit(divmod, 7, 2).result(2 * BOUND_S) == (3, 1)
        assert [":" in one for one in container.ran] == [False]
        futures = [client.submit(tasks.square, number) for number in range(5)]
        assert [one.result(3 * BOUND_S) for one in futures] == [n * n for n in range(5)]
        assert any(":" in one for one in container.ran)
        wait_until(lambda: not objects(aws), lambda: f"left: {objects(aws)}")
        parent = next(iter(container.jobs().values()))
        assert parent.timeout == {"attemptDurationSeconds": 3600}
        assert parent.job_name.startswith("divmod-")


def test_large_arguments_and_results(aws, container, shell) -> None:
    """They go through S3, compressed, one by one and in arrays."""
    data = os.urandom(200_000)
    with workers(shell) as client:
        assert client.submit(bytes.__add__, data, data).result(2 * BOUND_S) == data + data
        futures = [client.submit(bytes.__add__, data, bytes([n])) for n in range(3)]
        assert [one.result(3 * BOUND_S) for one in futures] == [data + bytes([n]) for n in range(3)]
        wait_until(lambda: not objects(aws), lambda: f"left: {objects(aws)}")


def test_errors_come_back(aws, container, shell) -> None:
    """As the exceptions that they are; of a job that fails, Batch's reason and the end of its log."""
    with workers(shell) as client:
        with pytest.raises(ValueError, match="wrong") as caught:
            client.submit(tasks.raise_this, "ValueError", "wrong").result(2 * BOUND_S)
        assert "in raise_this" in str(caught.value.__cause__)
        with pytest.raises(UnpicklableResultError, match="AWS Batch cannot pickle the result"):
            client.submit(threading.Lock).result(2 * BOUND_S)
        with pytest.raises(RemoteCallError, match="Essential container") as died:
            client.submit(_say_and_die).result(2 * BOUND_S)
        assert "last words" in str(died.value)


def test_a_task_that_is_cancelled(aws, container, shell, flags) -> None:
    """Its job is terminated."""
    with workers(shell, count=1) as client:
        held = client.submit(tasks.hold, flags.path("started"), flags.path("go"))
        flags.wait("started")
        assert held.cancel()
        wait_until(lambda: not container.running, "the job goes on")
        assert client.submit(abs, -1).result(2 * BOUND_S) == 1


def test_tasks_of_tasks(aws, container, shell) -> None:
    """A task waits for tasks that it submits, also if there is no second place."""
    with workers(shell, count=1) as client:
        assert client.submit(_twice, client, 3).result(3 * BOUND_S) == 12


def settings(**given) -> BatchSettings:
    return BatchSettings.of(
        **{
            "scheduler_address": "tcp://127.0.0.1:1",
            "job_queue": "queue",
            "job_definition": "job",
            "s3_bucket": "bucket",
        }
        | given
    )


@pytest.mark.parametrize("name", ["job_queue", "job_definition", "s3_bucket"])
def test_what_is_not_there(aws, name) -> None:
    """It is told at the start."""
    with pytest.raises(ClusterUnreachableError, match=f"{name} nowhere"):
        BatchRunner(settings(**{name: "nowhere"}), print)


def test_one_who_is_cancelled_before_there_is_a_job(aws) -> None:
    """None is submitted."""
    runner = BatchRunner(settings(), print)
    first, second = (RemoteCall(abs, (-1,), "abs") for _ in range(2))
    runner.submit(first)
    first.interrupt()
    runner.cancel(first)
    runner.submit(second)
    wait_until(Container.jobs, "nothing is submitted")
    assert len(Container.jobs()) == 1
    second.interrupt()
    runner.cancel(second)
    (job,) = Container.jobs().values()
    wait_until(lambda: job.stop, "it is not terminated")
    runner.close()


def test_a_copy_of_the_file_is_enough(aws, tmp_path) -> None:
    """An image needs cloudpickle and boto3 alone, and what fails is written down."""
    copy = tmp_path / "batch_job_runner.py"
    copy.write_text(Path(batch_job.__file__).read_text())
    given = "--payload bm8= --compressed 0 --s3_bucket bucket --s3_prefix p --s3_key none"
    done = subprocess.run(
        [sys.executable, "-I", str(copy), "--task_id", "1", *given.split()],
        env=os.environ | {"AWS_BATCH_JOB_ID": "j"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "UnpicklingError" in done.stderr
    assert objects(aws) == ["p/results/j.pkl"]


def test_settings_that_cannot_work() -> None:
    """They are told before anything is started."""
    with pytest.raises(ConfigError, match="go together"):
        settings(aws_access_key_id="x")


# -- what runs there ---------------------------------------------------------------------------


def _say_and_die() -> None:
    os.write(2, b"last words\n")
    os._exit(3)


def _twice(client: Client, number: int) -> int:
    return sum(client.submit(tasks.square, n).result() for n in (number, 1)) + 2
