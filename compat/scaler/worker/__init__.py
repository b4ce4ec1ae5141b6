"""Where the Scaler system keeps its workers."""
