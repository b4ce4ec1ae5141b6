"""Certificates of what answers by HTTP."""

from __future__ import annotations

import ssl
from pathlib import Path

from scaler_cluster.errors import ConfigError
from scaler_cluster.security.key_files import read_private


def tls_context(files: tuple[str, str]) -> ssl.SSLContext:
    """Return what a server needs for a certificate and its key.

    Raises ConfigError if a file cannot be read, if other users can read the key, or if the key
    belongs to another certificate.
    """
    certificate, key = files
    read_private(Path(key))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        what = f"{certificate} and {key} are no certificate and its key"
        raise ConfigError(f"{what}: {error.reason or error}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {certificate}: {error.strerror}") from None
    return context
