"""What the keys of one kind of node have in common, as Dask's own pages show it."""

from __future__ import annotations

from typing import Any

from scaler_cluster.ids import FUNCTION_NAME_CHARS_MAX

KEY_CHARS_MAX = 4 * FUNCTION_NAME_CHARS_MAX
"""What of a key is looked at: it is more than a name can be."""
DEPTH_MAX = 16
"""Tuples within the tuple that is a key; users have two."""
HASH_CHARS, DIGEST_CHARS = 8, 32


def prefix_of(key: Any) -> str:
    """Return what the keys of one kind of node have in common, by the rule of Dask's key_split.

    ``mean_chunk`` of ``("mean_chunk-1f5a", 0, 1)``.
    """
    for _ in range(DEPTH_MAX):
        if type(key) is not tuple or not key:
            break
        key = key[0]
    if type(key) is bytes:
        key = key[:KEY_CHARS_MAX].decode(errors="replace")
    if not isinstance(key, str) or not key or key[0] == "-":
        return "Other"
    words = key[:KEY_CHARS_MAX].split("-")
    name = words[0] if words[0][0].isalpha() else words[0].split(",")[0].strip("_'()\"")
    for word in words[1:]:
        # Eight letters that begin with one of a to f are taken for part of a hash.
        if not word.isalpha() or (len(word) == HASH_CHARS and word[0] in "abcdef"):
            break
        name += f"-{word}"
    if len(name) == DIGEST_CHARS and not name.strip("0123456789abcdef"):
        return "data"
    if name.startswith("<"):
        parts = name.strip("<>").split()
        name = parts[0].split(".")[-1] if parts else ""
    return name[:FUNCTION_NAME_CHARS_MAX] or "Other"
