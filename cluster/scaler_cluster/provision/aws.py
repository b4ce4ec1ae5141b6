"""What all backends at Amazon Web Services share: clients of boto3, and what errors say."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import ConfigError
from scaler_cluster.provision.backend import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_cluster.config.aws_settings import AWSSettings

ATTEMPTS = 6
"""A request that is throttled is made so often, ever later, before it fails."""
CONNECT_S, READ_S = 10, 30


def clients(settings: AWSSettings, *services: str) -> list[Any]:
    """Return clients of these services; raises ConfigError if boto3 is not installed."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise ConfigError("a manager at AWS needs boto3: pip install 'scaler-exec[aws]'") from None
    config = Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=CONNECT_S,
        read_timeout=READ_S,
    )
    try:
        session = boto3.Session(
            settings.aws_access_key_id,
            settings.aws_secret_access_key,
            region_name=settings.aws_region,
            profile_name=settings.aws_profile,
        )
        return [session.client(name, config=config) for name in services]
    except BotoCoreError as error:
        raise ConfigError(str(error)) from None


@contextlib.contextmanager
def asking(what: str) -> Iterator[None]:
    """Let errors of a request become a BackendError that says what was asked of whom."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        told = error.response.get("Error", {})
        raise BackendError(f"{what}: {told.get('Code')}: {told.get('Message')}") from None
    except BotoCoreError as error:
        raise BackendError(f"{what}: {error}") from None


def code_of(error: Any) -> str:
    """Return the code of a ClientError."""
    return str(error.response.get("Error", {}).get("Code", ""))
