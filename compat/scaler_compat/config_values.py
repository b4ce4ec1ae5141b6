"""Values of settings as programs for the Scaler system make them: objects that show themselves."""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_cluster.config.values import CAPABILITIES, read_address
from scaler_cluster.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self


def format_capabilities(capabilities: Mapping[str, int]) -> str:
    """Return capabilities as a command line has them, such as ``linux,gpu=1``."""
    return ",".join(
        name if amount == -1 else f"{name}={amount}" for name, amount in capabilities.items()
    )


class SocketType(enum.Enum):
    """How an address is reached."""

    inproc = "inproc"
    ipc = "ipc"
    tcp = "tcp"
    tls = "tls"
    ws = "ws"
    wss = "wss"


@dataclass
class AddressConfig:
    """An address in parts, in version 2; raises ConfigError for one that nobody listens at."""

    type: SocketType
    host: str
    port: int | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError unless this is an address."""
        if self.type not in (SocketType.ipc, SocketType.tcp):
            raise ConfigError(
                f"{self.type.value}:// is not there: use tcp:// with keys (see scaler_keys), or "
                "ipc:// within a machine"
            )
        try:
            read_address(str(self), listens=True)
        except ValueError as error:
            raise ConfigError(f"the address {error}") from None

    @classmethod
    def from_string(cls, value: str) -> Self:
        """Return the address that a text names, such as ``tcp://127.0.0.1:2345``."""
        kind, mark, rest = value.partition("://")
        if not mark or kind not in SocketType.__members__:
            raise ConfigError(f"an address is written as tcp://127.0.0.1:2345, not {value!r}")
        if kind == "ipc":
            return cls(SocketType.ipc, rest)
        host, _, port = rest.rpartition(":")
        if not port.isdecimal():
            raise ConfigError(f"{value!r} has no port: write tcp://host:port")
        return cls(SocketType[kind], host, int(port))

    def __str__(self) -> str:
        """Show it as a text, as it is written everywhere."""
        return f"{self.type.value}://{self.host}" + ("" if self.port is None else f":{self.port}")

    def to_address(self) -> str:
        """Return it as a text, in version 1."""
        return str(self)


@dataclass
class ObjectStorageConfig:
    """The address of an object storage, in version 1."""

    host: str
    port: int
    identity: str = "ObjectStorageServer"

    @classmethod
    def from_string(cls, value: str) -> Self:
        """Return the address that a text names."""
        one = AddressConfig.from_string(value)
        if one.port is None:
            raise ConfigError(f"an object storage is at tcp://host:port, not {value!r}")
        return cls(one.host, one.port)

    def __str__(self) -> str:
        """Show it as a text, as it is written everywhere."""
        return f"tcp://{self.host}:{self.port}"

    def to_string(self) -> str:
        """Return it as a text."""
        return str(self)


@dataclass
class HTTPConfig:
    """Where a page is served."""

    host: str
    port: int

    def __str__(self) -> str:
        """Show it as a text, as it is written everywhere."""
        return f"{self.host}:{self.port}"


@dataclass
class WorkerNames:
    """Names of workers."""

    names: list[str] = field(default_factory=list)

    @classmethod
    def from_string(cls, value: str) -> Self:
        """Return the names of a text in which commas are between them."""
        return cls([name.strip() for name in value.split(",")] if value else [])

    def __str__(self) -> str:
        """Show them with commas."""
        return ",".join(self.names)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.names)


@dataclass
class WorkerCapabilities:
    """What workers offer."""

    capabilities: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_string(cls, value: str) -> Self:
        """Return the capabilities of a text such as ``linux,gpu=1``; raises ConfigError."""
        return cls(dict(CAPABILITIES.argument("capabilities", value)))

    def __str__(self) -> str:
        """Show them as a command line has them."""
        return format_capabilities(self.capabilities)


class AllocatePolicy(enum.Enum):
    """How version 1 chooses workers."""

    even = "even"
    capability = "capability"


class ScalingControllerStrategy(enum.Enum):
    """How version 1 has workers started."""

    NULL = "null"
    VANILLA = "vanilla"
    FIXED_ELASTIC = "fixed_elastic"


class LoggingLevel(enum.Enum):
    """Levels of logging."""

    CRITICAL = logging.CRITICAL
    ERROR = logging.ERROR
    WARNING = logging.WARNING
    INFO = logging.INFO
    DEBUG = logging.DEBUG
    NOTSET = logging.NOTSET


class NativeWorkerManagerMode(enum.Enum):
    """Whether a manager has as many workers as are wanted, or always as many."""

    DYNAMIC = "dynamic"
    FIXED = "fixed"


class EventLoopType(enum.Enum):
    """Event loops of a scheduler."""

    builtin = "builtin"
    uvloop = "uvloop"

    @staticmethod
    def allowed_types() -> set[str]:
        """Return their names."""
        return set(EventLoopType.__members__)
