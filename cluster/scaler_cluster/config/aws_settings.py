"""The settings of managers and adapters whose units run at Amazon Web Services."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from scaler_cluster.config.kubernetes_settings import PAIRS
from scaler_cluster.config.manager_settings import ManagerSettings, UnitSettings
from scaler_cluster.config.option import option
from scaler_cluster.config.values import FILE, NAMES, TEXT, whole
from scaler_cluster.config.webhook_settings import AdapterSettings
from scaler_cluster.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class AWSSettings(UnitSettings):
    """Of all of them. Credentials are those that boto3 finds, unless they are given."""

    aws_region: str = option("the region", TEXT, default="us-east-1")
    aws_profile: str | None = option("a profile of ~/.aws/config", TEXT, default=None)
    aws_access_key_id: str | None = option(
        "credentials; better in AWS_ACCESS_KEY_ID or a profile", TEXT, default=None
    )
    aws_secret_access_key: str | None = option(
        "credentials; better in AWS_SECRET_ACCESS_KEY, which other users cannot see",
        TEXT,
        default=None,
    )

    def __post_init__(self) -> None:
        """Raise ConfigError if one half of the credentials is missing."""
        if (self.aws_access_key_id is None) != (self.aws_secret_access_key is None):
            raise ConfigError(
                "aws_access_key_id and aws_secret_access_key go together: give both, or none"
            )


@dataclass(frozen=True, kw_only=True)
class TaskSettings(AWSSettings):
    """Of whatever has tasks of ECS started, on Fargate."""

    ecs_subnets: tuple[str, ...] = option("the subnets of the tasks", NAMES)
    ecs_security_groups: tuple[str, ...] = option(
        "the security groups of the tasks (default: the network's)", NAMES, default=()
    )
    ecs_cluster: str = option(
        "the cluster of ECS; it is made if it is not there", TEXT, default="scaler-cluster"
    )
    ecs_task_definition: str = option(
        "the task definition; it is made if it is not there", TEXT, default="scaler-task-definition"
    )
    ecs_task_image: str = option(
        "the image of a task definition that is made; it installs PYTHON_REQUIREMENTS and runs "
        "COMMAND",
        TEXT,
        default="public.ecr.aws/v4u8j8r6/scaler:latest",
    )
    ecs_task_cpu: int = option("how many CPUs a task has", whole(1), default=4)
    ecs_task_memory: int = option("how much memory a task has, in GB", whole(1), default=30)
    ecs_python_requirements: str = option(
        "what the image installs, separated by ;", TEXT, default="scaler-exec"
    )
    ecs_python_version: str = option("the Python that it installs", TEXT, default="3.12.11")
    keys_secret_arn: str | None = option(
        "the secret of Secrets Manager with the workers' keys, of a task definition that is made",
        TEXT,
        default=None,
    )

    def __post_init__(self) -> None:
        """Raise ConfigError if no subnet is named."""
        super().__post_init__()
        if not self.ecs_subnets:
            raise ConfigError("ecs_subnets must name one subnet at least")


@dataclass(frozen=True, kw_only=True)
class ECSSettings(TaskSettings, ManagerSettings):
    """Of a manager whose units are tasks of ECS, on Fargate."""

    types: ClassVar[tuple[str, ...]] = ("aws_raw_ecs",)

    workers_per_unit: int | None = option(  # type: ignore[assignment]
        "how many workers a task of ECS has (default: ecs_task_cpu)", whole(1), default=None
    )

    @property
    def workers_in_unit(self) -> int:
        """How many workers a task has."""
        return self.workers_per_unit or self.ecs_task_cpu


@dataclass(frozen=True, kw_only=True)
class ECSAdapterSettings(TaskSettings, AdapterSettings):
    """Of an adapter whose worker groups are tasks of ECS, on Fargate."""

    names: ClassVar[tuple[str, ...]] = ("ecs_worker_adapter",)
    group: ClassVar[tuple[str, str]] = ("ecs", "ECS")
    dry_run: ClassVar[bool] = False
    """Only a manager has this setting."""

    max_instances: int | None = option(
        "the most tasks of ECS at once; -1: no limit (default: one for each CPU of this machine "
        "but one)",
        whole(1, unset=-1),
        "-mi",
        "-mw",
        default=None,
        also=("max_workers",),
    )

    @property
    def workers_in_unit(self) -> int:
        """How many workers a task has."""
        return self.ecs_task_cpu


@dataclass(frozen=True, kw_only=True)
class EC2Settings(AWSSettings, ManagerSettings):
    """Of a manager whose units are instances of EC2."""

    types: ClassVar[tuple[str, ...]] = ("aws_ec2", "orb_aws_ec2")

    workers_per_unit: int | None = option(  # type: ignore[assignment]
        "how many workers an instance has (default: one for each of its CPUs)",
        whole(1),
        default=None,
    )
    instance_type: str = option("the type of the instances", TEXT, default="t2.micro")
    image_id: str | None = option(
        "an image in which scaler-exec is installed for remote_python; or give python_version and "
        "requirements_txt",
        TEXT,
        default=None,
    )
    remote_python: str = option("the interpreter of that image", TEXT, default="python3")
    python_version: str | None = option(
        "the Python that a plain Amazon Linux installs at its start", TEXT, default=None
    )
    requirements_txt: str | None = option(
        "a file with what it installs, scaler-exec among it", FILE, default=None
    )
    subnet_id: str | None = option(
        "the subnet (default: one of the default network)", TEXT, default=None
    )
    security_group_ids: tuple[str, ...] = option(
        "the security groups (default: the network's)", NAMES, default=()
    )
    key_name: str | None = option("a key pair to log in with", TEXT, default=None)
    instance_tags: Mapping[str, str] = option(
        "further tags of the instances, such as team=blue", PAIRS, default={}
    )

    def __post_init__(self) -> None:
        """Raise ConfigError unless there is one way to the software."""
        super().__post_init__()
        of_plain = {self.python_version is not None, self.requirements_txt is not None}
        if of_plain != {self.image_id is None}:
            raise ConfigError("give image_id, or python_version and requirements_txt")
        if self.image_id is None and "scaler-exec" not in self.requirements:
            raise ConfigError(f"{self.requirements_txt} does not name scaler-exec")

    @property
    def requirements(self) -> str:
        """What is in the file of requirements; raises ConfigError."""
        if self.requirements_txt is None:
            return ""
        try:
            return Path(self.requirements_txt).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {self.requirements_txt}: {error}") from None

    @property
    def workers_in_unit(self) -> int:
        """How many workers an instance has, if that is said."""
        return self.workers_per_unit or 1
