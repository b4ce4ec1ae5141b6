"""Measures the engine against its peers, in one run, on one machine.

``python -m benchmarks`` runs the scenarios; README.md says how to read what it prints.
Nothing here is part of the product, and pytest never runs it.

Importing this package makes the engine beside it importable, installed or not: what is measured
is always this tree, never a mixture of it and an older installation.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPAT = str(ROOT / "compat")
"""Last of all: where opengris-scaler is installed, `scaler` is that one."""
SOURCE_ROOTS = (str(ROOT), *(str(ROOT / name) for name in ("cluster", "monitoring")))

sys.path[:0] = [path for path in SOURCE_ROOTS if path not in sys.path]
if COMPAT not in sys.path:
    sys.path.append(COMPAT)
