"""What the tests of the window share."""

from __future__ import annotations

from hypothesis import settings

# A machine that others use as well is sometimes slow; that is no failure of what is tested.
settings.register_profile("scaler", deadline=None)
settings.load_profile("scaler")
