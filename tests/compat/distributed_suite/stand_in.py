"""Stands for the package ``distributed`` in its own tests, here and in workers.

A name of any of its modules is that of ``scaler_exec.distributed``, or a helper of its tests, or
something that may be imported and inherited from but raises :class:`InsideError` where it is used.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "distributed"


class InsideError(Exception):
    """A test looks at what is not of the public interface."""


class _Inside(type):
    def __call__(cls, *_: object, **__: object) -> NoReturn:
        raise InsideError(cls.__name__)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InsideError(f"{cls.__name__}.{name}")


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        import helpers  # type: ignore[import-not-found]

        from scaler_exec import distributed as ours

        for place in (helpers, ours):
            try:
                return getattr(place, name)
            except AttributeError:
                continue
        return _Inside(name, (), {})


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != NAME:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def install() -> None:
    """Let every import of the package find this."""
    sys.meta_path.insert(0, _Finder())
