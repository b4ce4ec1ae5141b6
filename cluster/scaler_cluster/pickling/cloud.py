"""cloudpickle's pickler, with the types that cloudpickle itself does not ship."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pickle import Pickler as CloudPickler
else:
    from cloudpickle import Pickler as CloudPickler

__all__ = ["CloudPickler"]
