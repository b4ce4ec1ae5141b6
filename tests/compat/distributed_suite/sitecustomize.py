"""Lets the tests, and workers that import them, find this engine as ``distributed``."""

import stand_in  # type: ignore[import-not-found]

stand_in.install()
