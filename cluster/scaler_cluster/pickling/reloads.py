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

Reload: TypeAlias = "tuple[bytes, bool]"
"""What names a reload of a module, and whether it came to its end."""
Reloads: TypeAlias = "tuple[tuple[str, Reload], ...]"
"""Modules and the last reload of each, in the order of these."""

_last: dict[str, Reload] = {}
noted: Reloads = ()
"""What was reloaded so far: the same tuple until there is more."""


class _Watcher:
    """Asked for every module that is imported: only ``importlib.reload`` names a target."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Note a reload that others find, and once more when it has come to its end."""
        if target is None:
            return None
        others = [one for one in sys.meta_path if one is not _Watcher and hasattr(one, "find_spec")]
        spec = next(filter(None, (one.find_spec(name, path, target) for one in others)), None)
        if spec is not None:
            _watch(name, spec.loader)
        return spec


def _watch(name: str, loader: Any) -> None:
    reload = os.urandom(8)
    execute: Any = getattr(loader, "exec_module", None)

    def exec_module(module: ModuleType) -> None:
        execute(module)
        _note(name, (reload, True))

    try:
        is_watched = not isinstance(loader, type)
        if is_watched:
            loader.exec_module = exec_module
    except AttributeError:
        is_watched = False
    # Of what cannot be watched, the workers have to come to the end.
    _note(name, (reload, not is_watched))


def watch_reloads() -> None:
    """Note the modules that are reloaded in this process from now on; idempotent."""
    if _Watcher not in sys.meta_path:
        sys.meta_path.insert(0, _Watcher)


def load_after(reloads: Reloads, stream: Buffer, *buffers: Buffer) -> Any:
    """Unpickle a value once the modules that this process has are as new as the sender's.

    Raises what a reload raises that raised nothing in the sender.
    """
    for name, reload in reloads:
        if _last.get(name) != reload:
            module = sys.modules.get(name)
            if module is not None:
                try:
                    importlib.reload(module)
                except Exception:
                    if reload[1]:
                        raise
                    # The sender, too, has the module as far as it got.
                    LOGGER.warning("the module %s was reloaded, which raised", name, exc_info=True)
            _note(name, reload)
    return pickle.loads(stream, buffers=buffers)


def _note(name: str, reload: Reload) -> None:
    global noted  # noqa: PLW0603
    _last.pop(name, None)
    _last[name] = reload
    noted = tuple(_last.items())
