"""Where the Scaler system keeps its settings."""
