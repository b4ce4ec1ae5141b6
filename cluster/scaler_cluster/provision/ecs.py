"""Units that are tasks of ECS, on Fargate.

What they need is made if it is not there: the cluster, the task definition, and the role by which
images are fetched. The image's contract is that of the Scaler system: it installs what
PYTHON_REQUIREMENTS names, and runs COMMAND.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import ConfigError
from scaler_cluster.provision.aws import asking, clients, code_of
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.security.credentials import KEY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scaler_cluster.config.aws_settings import ECSAdapterSettings, ECSSettings
    from scaler_cluster.provision.unit_command import UnitCommand
    from scaler_cluster.wire.messages import Offer

CONTAINER = "scaler-container"
ROLE = "ecsTaskExecutionRole"
POLICY = "arn:aws:iam::aws:policy/service-role/AmazonECSTaskExecutionRolePolicy"
UNIT_VARIABLE = "SCALER_UNIT"
"""The environment variable by which a task says which unit it is."""
DESCRIBED_MAX = 100
"""Tasks that are described at once."""
STARTED_BY_MAX = 36
STOPPED = ("DEPROVISIONING", "STOPPING", "STOPPED", "DELETED")
RUNNING = "RUNNING"


class ECSBackend:
    """Runs, lists and stops tasks; those of a manager are found by who has started them.

    Without a manager, the backend knows those alone that it has started itself.
    """

    lifetime_s: float | None = None

    def __init__(self, settings: ECSSettings | ECSAdapterSettings, command: UnitCommand) -> None:
        self._settings = settings
        self._command = command
        if settings.keys_secret_arn is None and command.keys_text:
            raise ConfigError(
                "the workers need keys: put worker.key into a secret of Secrets Manager, and name "
                "it with --keys-secret-arn"
            )
        name = command.manager_id
        digest = hashlib.blake2b(name.encode(), digest_size=STARTED_BY_MAX // 2).hexdigest()
        self._who = f"the manager {name}" if name else "the adapter"
        self._started_by: dict[str, str] = {}
        """Said of each task, if there is a manager."""
        if name:
            self._started_by["startedBy"] = name if len(name) <= STARTED_BY_MAX else digest
        self._definition = ""
        """The task definition, once it is known to be there."""
        self._tasks: dict[str, str] = {}
        """The task of each unit, as far as it is known."""
        self._undescribed: dict[str, str] = {}
        """Those of them that ECS has not described yet: it does so a moment after their start."""
        if not settings.dry_run:
            self._ecs, self._iam = clients(settings, "ecs", "iam")

    def offered(self, offer: Offer) -> Offer:
        """Return what the settings offer."""
        return offer

    def start(self, units: Sequence[str]) -> None:
        """Run a task for each unit."""
        self._prepare()
        for unit in units:
            with asking("ECS runs no task"):
                answer = self._ecs.run_task(**self._order(unit))
            failures = answer.get("failures") or ()
            if failures or not answer.get("tasks"):
                why = "; ".join(one.get("reason") or "no reason" for one in failures)
                raise BackendError(f"ECS runs no task: {why or 'it names none'}")
            self._tasks[unit] = self._undescribed[unit] = answer["tasks"][0]["taskArn"]

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the tasks that the manager has started, and why those stopped that have."""
        with asking("ECS lists no tasks"):
            try:
                found = dict(self._describe({*self._tasks.values(), *self._listed()}))
            except self._ecs.exceptions.ClusterNotFoundException:
                return {}
        for unit in found:
            self._undescribed.pop(unit, None)
        # One that has stopped is told once.
        known = {unit: arn for unit, (arn, status) in found.items() if not status.is_over}
        self._tasks = self._undescribed | known
        new = dict.fromkeys(self._undescribed, UnitStatus(reason="ECS does not describe it yet"))
        return new | {unit: status for unit, (_, status) in found.items()}

    def stop(self, units: Sequence[str]) -> None:
        """Stop tasks; their workers have half a minute to end."""
        for unit in units:
            if unit in self._tasks:
                with asking(f"ECS does not stop {unit}"):
                    self._ecs.stop_task(
                        cluster=self._settings.ecs_cluster,
                        task=self._tasks[unit],
                        reason=f"{self._who} ends it",
                    )
                self._undescribed.pop(unit, None)

    def dry_run(self, unit: str) -> str:
        """Return what run_task is told, as JSON."""
        return json.dumps(self._order(unit), indent=2)

    def close(self) -> None:
        """Close the connections."""
        if not self._settings.dry_run:
            self._ecs.close()
            self._iam.close()

    def _order(self, unit: str) -> dict[str, Any]:
        settings = self._settings
        variables = {
            "COMMAND": self._command.program_line(unit),
            "PYTHON_REQUIREMENTS": settings.ecs_python_requirements,
            "PYTHON_VERSION": settings.ecs_python_version,
            UNIT_VARIABLE: unit,
        }
        network: dict[str, Any] = {
            "subnets": list(settings.ecs_subnets),
            "assignPublicIp": "ENABLED",
        }
        if settings.ecs_security_groups:
            network["securityGroups"] = list(settings.ecs_security_groups)
        environment = [{"name": name, "value": value} for name, value in variables.items()]
        return {
            "cluster": settings.ecs_cluster,
            "taskDefinition": self._definition or settings.ecs_task_definition,
            "launchType": "FARGATE",
            "networkConfiguration": {"awsvpcConfiguration": network},
            "overrides": {"containerOverrides": [{"name": CONTAINER, "environment": environment}]},
            **self._started_by,
        }

    def _listed(self) -> Iterator[str]:
        """Yield the tasks that the manager has started, as far as ECS lists them."""
        if self._started_by:
            pages = self._ecs.get_paginator("list_tasks").paginate(
                cluster=self._settings.ecs_cluster, **self._started_by
            )
            for page in pages:
                yield from page["taskArns"]

    def _describe(self, arns: Iterable[str]) -> Iterator[tuple[str, tuple[str, UnitStatus]]]:
        """Yield units, each with its task and how that is."""
        ordered = sorted(arns)
        for start in range(0, len(ordered), DESCRIBED_MAX):
            some = ordered[start : start + DESCRIBED_MAX]
            answer = self._ecs.describe_tasks(cluster=self._settings.ecs_cluster, tasks=some)
            for task in answer["tasks"]:
                unit = _unit_of(task)
                if unit:
                    yield unit, (task["taskArn"], _status_of(task))

    # -- what tasks need -----------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make what is not there; once."""
        if self._definition:
            return
        settings = self._settings
        with asking("ECS has no cluster"):
            answer = self._ecs.describe_clusters(clusters=[settings.ecs_cluster])
            if not any(one["status"] == "ACTIVE" for one in answer["clusters"]):
                self._ecs.create_cluster(clusterName=settings.ecs_cluster)
        with asking("ECS has no task definition"):
            try:
                answer = self._ecs.describe_task_definition(
                    taskDefinition=settings.ecs_task_definition
                )
            except self._ecs.exceptions.ClientException:
                answer = self._ecs.register_task_definition(**self._definition_to_make())
        self._definition = answer["taskDefinition"]["taskDefinitionArn"]

    def _definition_to_make(self) -> dict[str, Any]:
        settings = self._settings
        megabytes = settings.ecs_task_memory * 1024
        container: dict[str, Any] = {
            "name": CONTAINER,
            "image": settings.ecs_task_image,
            "essential": True,
            "memory": megabytes,
        }
        if settings.keys_secret_arn is not None:
            container["secrets"] = [{"name": KEY_VARIABLE, "valueFrom": settings.keys_secret_arn}]
        return {
            "family": settings.ecs_task_definition,
            "cpu": str(settings.ecs_task_cpu * 1024),
            "memory": str(megabytes),
            "runtimePlatform": {"cpuArchitecture": "X86_64", "operatingSystemFamily": "LINUX"},
            "networkMode": "awsvpc",
            "requiresCompatibilities": ["FARGATE"],
            "containerDefinitions": [container],
            "executionRoleArn": self._role(),
        }

    def _role(self) -> str:
        """Return the role by which images are fetched; make it if it is not there."""
        from botocore.exceptions import ClientError

        try:
            return str(self._iam.get_role(RoleName=ROLE)["Role"]["Arn"])
        except ClientError as error:
            if code_of(error) != "NoSuchEntity":
                raise
        trust = {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": "ecs-tasks.amazonaws.com"},
                    "Action": "sts:AssumeRole",
                }
            ],
        }
        made = self._iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=json.dumps(trust))
        self._iam.attach_role_policy(RoleName=ROLE, PolicyArn=POLICY)
        return str(made["Role"]["Arn"])


def _unit_of(task: Mapping[str, Any]) -> str:
    """Return which unit a task is; empty: none."""
    for container in task.get("overrides", {}).get("containerOverrides", ()):
        for one in container.get("environment", ()):
            if one["name"] == UNIT_VARIABLE:
                return str(one["value"])
    return ""


def _status_of(task: Mapping[str, Any]) -> UnitStatus:
    state = task.get("lastStatus", "")
    if state in STOPPED:
        told = [one.get("reason") for one in task.get("containers", ())]
        reasons = [task.get("stoppedReason"), *told]
        return UnitStatus(True, ": ".join(dict.fromkeys(filter(None, reasons))))
    return UnitStatus(reason="" if state == RUNNING else state)
