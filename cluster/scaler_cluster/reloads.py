"""Modules that were reloaded: workers reload them, too, before they run what comes after that.

A function of a module travels by its name, so a worker runs what its own module has by that name.
After ``importlib.reload`` in the client, a worker that has the module would keep the old code, and
one that has not would import the new.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

from scaler_cluster.logs import LOGGER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from scaler_cluster.wire.batch import Buffer

Reloads: TypeAlias = "tuple[tuple[str, bytes], ...]"
"""Modules and what names their last reload, in the order of these."""

_last: dict[str, bytes] = {}
noted: Reloads = ()
"""What was reloaded so far: the same tuple until there is more."""


class _Watcher:
    """Asked for every module that is imported: only ``importlib.reload`` names a target."""

    @staticmethod
    def find_spec(
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG004 - so it is called
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Note a reload, and leave the finding to others."""
        if target is not None:
            _note(name, os.urandom(8))
        return None


def watch_reloads() -> None:
    """Note the modules that are reloaded in this process from now on; idempotent."""
    if _Watcher not in sys.meta_path:
        sys.meta_path.insert(0, _Watcher)


def load_after(reloads: Reloads, stream: Buffer, *buffers: Buffer) -> Any:
    """Unpickle a value once the modules that this process has are as new as the sender's."""
    for name, reload in reloads:
        if _last.get(name) != reload:
            module = sys.modules.get(name)
            if module is not None:
                try:
                    importlib.reload(module)
                except Exception:
                    # The sender's reload failed, too: it also has the module as far as it got.
                    LOGGER.exception("the module %s was reloaded, which raised", name)
            _note(name, reload)
    return pickle.loads(stream, buffers=buffers)


def _note(name: str, reload: bytes) -> None:
    global noted  # noqa: PLW0603
    _last.pop(name, None)
    _last[name] = reload
    noted = tuple(_last.items())
