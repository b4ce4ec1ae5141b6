"""Callables that never change."""

from __future__ import annotations


class Constant:
    """Base of callables that never change once they are made: they are pickled once."""

    __slots__ = ("__weakref__",)

    @property
    def label(self) -> str:
        """What people call it."""
        raise NotImplementedError
