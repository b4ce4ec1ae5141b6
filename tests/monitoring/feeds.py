"""What a scheduler may have published, for the tests of what monitors make of it."""

from __future__ import annotations

from scaler_monitoring.model import Model


def fed(*messages):
    """Return a model that has heard these, one a second."""
    model = Model()
    for now, message in enumerate(messages):
        model.apply(message, float(now))
    return model
