"""Units that are instances of EC2: each starts its workers by its user data, and ends with them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaler_cluster.provision.aws import asking, clients
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.security.credentials import KEY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.config.aws_settings import EC2Settings
    from scaler_cluster.provision.unit_command import UnitCommand
    from scaler_cluster.wire.messages import Offer

MANAGER_TAG, UNIT_TAG = "scaler:manager", "scaler:unit"
IMAGE_NAME = "al2023-ami-2023.*-kernel-*-x86_64"
"""Amazon's own Linux, of which the newest is taken."""
HOME = "/opt/scaler"
OVER = ("shutting-down", "terminated", "stopping", "stopped")
RUNNING = "running"


class EC2Backend:
    """Runs, lists and terminates instances; those of a manager have its tag."""

    lifetime_s: float | None = None

    def __init__(self, settings: EC2Settings, command: UnitCommand) -> None:
        self._settings = settings
        self._command = command
        self._instances: dict[str, str] = {}
        """The id of each unit's instance, as they were listed last."""
        self._image = settings.image_id or ""
        if not settings.dry_run:
            (self._ec2,) = clients(settings, "ec2")

    def offered(self, offer: Offer) -> Offer:
        """Return what the settings offer; a unit has as many workers as the instance has CPUs."""
        if self._settings.workers_per_unit is not None:
            return offer
        kind = self._settings.instance_type
        with asking(f"EC2 knows no {kind}"):
            answer = self._ec2.describe_instance_types(InstanceTypes=[kind])
        cpus = int(answer["InstanceTypes"][0]["VCpuInfo"]["DefaultVCpus"])
        self._command = replace(self._command, workers=cpus)
        return replace(offer, per_unit=cpus)

    def start(self, units: Sequence[str]) -> None:
        """Run an instance for each unit."""
        if not self._image:
            self._image = self._newest_image()
        for unit in units:
            with asking("EC2 runs no instance"):
                answer = self._ec2.run_instances(**self._order(unit))
            self._instances[unit] = answer["Instances"][0]["InstanceId"]

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the instances that have the manager's tag."""
        found: dict[str, UnitStatus] = {}
        with asking("EC2 lists no instances"):
            pages = self._ec2.get_paginator("describe_instances").paginate(
                Filters=[{"Name": f"tag:{MANAGER_TAG}", "Values": [self._command.manager_id]}]
            )
            reservations = [one for page in pages for one in page["Reservations"]]
        for instance in (one for each in reservations for one in each["Instances"]):
            tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
            if UNIT_TAG in tags:
                unit, status = tags[UNIT_TAG], _status_of(instance)
                found[unit] = status
                self._instances[unit] = instance["InstanceId"]
                if status.is_over:
                    del self._instances[unit]
        return found

    def stop(self, units: Sequence[str]) -> None:
        """Terminate instances."""
        ids = [self._instances[unit] for unit in units if unit in self._instances]
        if ids:
            with asking("EC2 terminates no instance"):
                self._ec2.terminate_instances(InstanceIds=ids)

    def dry_run(self, unit: str) -> str:
        """Return the user data of an instance."""
        script, kind = self.user_data(unit), self._settings.instance_type
        if self._settings.workers_per_unit is None:
            about = f"# --num-of-workers is 1 here; it will be the number of CPUs of a {kind}"
            return f"{about}, which EC2 is asked for\n{script}"
        return script

    def close(self) -> None:
        """Close the connections."""
        if not self._settings.dry_run:
            self._ec2.close()

    def _newest_image(self) -> str:
        with asking("EC2 has no image"):
            answer = self._ec2.describe_images(
                Owners=["amazon"], Filters=[{"Name": "name", "Values": [IMAGE_NAME]}]
            )
        images = sorted(answer["Images"], key=lambda one: one.get("CreationDate", ""))
        if not images:
            raise BackendError(f"EC2 has no image {IMAGE_NAME}: name one with --image-id")
        return str(images[-1]["ImageId"])

    def _order(self, unit: str) -> dict[str, Any]:
        settings = self._settings
        tags = {
            **settings.instance_tags,
            "Name": unit,
            MANAGER_TAG: self._command.manager_id,
            UNIT_TAG: unit,
        }
        order: dict[str, Any] = {
            "ImageId": self._image,
            "InstanceType": settings.instance_type,
            "MinCount": 1,
            "MaxCount": 1,
            # A request that is made again makes no second instance.
            "ClientToken": unit,
            "UserData": self.user_data(unit),
            # Its last command is shutdown.
            "InstanceInitiatedShutdownBehavior": "terminate",
            "TagSpecifications": [
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": name, "Value": value} for name, value in tags.items()],
                }
            ],
        }
        if settings.subnet_id is not None:
            order["SubnetId"] = settings.subnet_id
        if settings.security_group_ids:
            order["SecurityGroupIds"] = list(settings.security_group_ids)
        if settings.key_name is not None:
            order["KeyName"] = settings.key_name
        return order

    def user_data(self, unit: str) -> str:
        """Return the script that an instance runs at its start, as root."""
        settings, python = self._settings, self._settings.remote_python
        # Whatever happens, an instance without workers ends.
        lines = ["#!/bin/sh", "trap 'shutdown -h now' EXIT", "set -e"]
        if settings.image_id is None:
            python = f"{HOME}/bin/python"
            lines += [
                "curl -LsSf https://astral.sh/uv/install.sh | UV_INSTALL_DIR=/usr/local/bin sh",
                f"cat > /tmp/requirements.txt <<'END'\n{settings.requirements.rstrip()}\nEND",
                f"uv venv --python {shlex.quote(settings.python_version or '')} {HOME}",
                f"uv pip install --python {HOME} -r /tmp/requirements.txt",
            ]
        if keys := self._command.keys_text:
            lines.append(f"export {KEY_VARIABLE}={shlex.quote(keys)}")
        lines.append(self._command.line(unit, python))
        return "\n".join(lines) + "\n"


def _status_of(instance: Mapping[str, Any]) -> UnitStatus:
    state = instance["State"]["Name"]
    why = instance.get("StateReason", {}).get("Message", "")
    if state in OVER:
        return UnitStatus(True, why)
    return UnitStatus(reason="" if state == RUNNING else state)
