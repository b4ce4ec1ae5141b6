"""Settings that several sections have."""

from __future__ import annotations

from dataclasses import dataclass

from scaler_cluster.config.option import Section, option
from scaler_cluster.config.values import FILE, FILES, FLAG, choice
from scaler_cluster.errors import ConfigError
from scaler_cluster.users import INSECURE

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True, kw_only=True)
class Logging(Section):
    """Of everything that writes a log."""

    logging_paths: tuple[str, ...] = option(
        "where to log: a file, which is rotated at midnight, /dev/stdout or -, or /dev/stderr",
        FILES,
        "-lp",
        default=("/dev/stdout",),
    )
    logging_level: str = option("the lowest level to log", choice(*LEVELS), "-ll", default="INFO")
    logging_config_file: str | None = option(
        "a file for logging.config.fileConfig, used instead of paths and level",
        FILE,
        "-lcf",
        "-lc",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class Encrypted(Section):
    """Of what answers by HTTP."""

    tls_cert: str | None = option(
        "a certificate, with its chain, in PEM: answer by HTTPS alone", FILE, default=None
    )
    tls_key: str | None = option("its key, in a file that nobody else can read", FILE, default=None)

    def __post_init__(self) -> None:
        """Raise ConfigError if one of the two is given without the other."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("tls_cert and tls_key go together: give both, or none")

    @property
    def tls(self) -> tuple[str, str] | None:
        """Return both files; None: there are none."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return self.tls_cert, self.tls_key


@dataclass(frozen=True, kw_only=True)
class Secured(Section):
    """Of everything that listens or connects."""

    keys: str | None = option(
        "a file or directory that scaler_keys made (default: SCALER_KEYS; a loopback address needs "
        "none)",
        FILE,
        "-k",
        default=None,
    )
    insecure: bool = option(
        "go without keys: whoever reaches the address can run code, and nothing is encrypted",
        FLAG,
        default=False,
    )

    @property
    def given_keys(self) -> str | None:
        """Return what to make credentials of; raises ConfigError if it is both."""
        if self.insecure and self.keys is not None:
            raise ConfigError("keys and insecure are opposites: give only one")
        return INSECURE if self.insecure else self.keys
