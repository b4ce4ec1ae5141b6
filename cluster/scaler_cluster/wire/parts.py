"""How many parts a large header has, found before msgpack makes objects of them.

A header may be all empty lists: read at once, it would take 70 times its length in memory, and
keep all other peers waiting. Nothing is made here: it is stepped over part by part.
"""

from __future__ import annotations


def has_more_parts(header: bytes, most: int) -> bool:
    """Return True if this is more than so many values, or announces more, or has some of no kind.

    A header that is no msgpack at all may pass: to read it fails.
    """
    at, announced, size = 0, 0, len(header)
    for _ in range(most + 2):
        if at >= size:
            return announced > most
        fixed, width, each = _STEPS[header[at]]
        at += 1
        if width:
            length = int.from_bytes(header[at : at + width], "big")
            at += width
            if each:
                fixed, announced = 0, announced + each * length
            else:
                fixed = length
        elif each:
            fixed, announced = 0, announced + each * fixed
        if fixed < 0 or announced > most:
            return True
        at += fixed
    return True


def _step(byte: int) -> tuple[int, int, int]:
    """Return what follows the first byte of a value, for lists and maps without what is in them.

    That is a number of bytes, or the bytes that say how many, or the number of values; then how
    many values each of these is.
    """
    if byte <= 0x7F or byte >= 0xE0:
        return 0, 0, 0
    if byte <= 0x9F:
        return byte & 0x0F, 0, 2 if byte <= 0x8F else 1
    if byte <= 0xBF:
        return byte & 0x1F, 0, 0
    return _OTHERS.get(byte, (-1, 0, 0))


_OTHERS = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), (0, 0, 0)),
    **{first + power: (0, 1 << power, 0) for first in (0xC4, 0xD9) for power in range(3)},
    **{first + power: (1 << power, 0, 0) for first in (0xCC, 0xD0) for power in range(4)},
    0xCA: (4, 0, 0),
    0xCB: (8, 0, 0),
    0xDC: (0, 2, 1),
    0xDD: (0, 4, 1),
    0xDE: (0, 2, 2),
    0xDF: (0, 4, 2),
}
"""Numbers, texts, bytes, lists and maps; what msgpack has besides, no message has."""
_STEPS = tuple(map(_step, range(256)))
