"""Files as memory, without the descriptor that Python's mmap keeps open for each.

A process may have a thousand open files, and tens of thousands of objects.
"""

from __future__ import annotations

import ctypes
import mmap
import os

from scaler_cluster.objects.unchanging import Unchanging

MAP_FIXED = 0x10
MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)


def map_file(fd: int, *, writable: bool) -> memoryview:
    """Return the content of a file; what is written to it, if it may be, stays in this process.

    Where the system allows no more mappings, it is read.
    """
    nbytes = os.fstat(fd).st_size
    if not nbytes:
        return memoryview(b"")
    try:
        # The object owns the place, and gives it back at its end; the file is put there.
        place = (mmap.mmap if writable else Unchanging)(-1, nbytes)
    except OSError:
        return _read(fd, bytearray(nbytes), writable=writable)
    address = ctypes.addressof(ctypes.c_char.from_buffer(place))
    prot = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
    kind = mmap.MAP_PRIVATE if writable else mmap.MAP_SHARED
    if _libc.mmap(address, nbytes, prot, kind | MAP_FIXED, fd, 0) == MAP_FAILED:
        return _read(fd, place, writable=writable)
    return memoryview(place) if writable else memoryview(place).toreadonly()


def _read(fd: int, place: bytearray | mmap.mmap, *, writable: bool) -> memoryview:
    view, done = memoryview(place), 0
    while done < len(view):
        done += os.preadv(fd, [view[done:]], done)
    return view if writable else view.toreadonly()
