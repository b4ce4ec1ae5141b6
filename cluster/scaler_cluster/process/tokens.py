"""Tokens that a user chose: as a setting, or in the environment."""

from __future__ import annotations

import os

from scaler_cluster.config.values import TOKEN


def chosen_token(setting: str | None, variable: str) -> str | None:
    """Return the token of a setting, else that of an environment variable; None: there is neither.

    Raises ConfigError if the variable holds no token. An empty one is wrong as well: a secret that
    did not arrive must not open a door.
    """
    if setting is not None:
        return setting
    value = os.environ.get(variable)
    return None if value is None else str(TOKEN.argument(variable, value))
