"""Memory that nobody may write to: it need not be looked at again."""

from __future__ import annotations

import mmap
import sys
from typing import Any


class Unchanging(mmap.mmap):
    """Memory of a segment, which nobody may write to, here or elsewhere."""


def may_not_change(buffer: memoryview) -> bool:
    """Return True if nobody may write to a buffer: neither through it nor through its owners.

    An array that was made read-only is taken at its word.
    """
    owner: Any = buffer.obj
    if not buffer.readonly:
        return False
    array = getattr(sys.modules.get("numpy"), "ndarray", None)
    while type(owner) is not bytes and type(owner) is not Unchanging:
        if type(owner) is memoryview and owner.readonly:
            owner = owner.obj
        elif type(owner) is array and not owner.flags.writeable:
            if owner.flags.owndata:
                return True
            owner = owner.base
        else:
            return False
    return True


def unchanging(content: bytes) -> memoryview:
    """Return a copy of some bytes that is stored once for as long as somebody has it.

    Bytes themselves cannot be watched for their end, so they would be stored with each use.
    """
    place = Unchanging(-1, len(content))
    place.write(content)
    return memoryview(place).toreadonly()
