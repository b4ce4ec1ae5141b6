"""Where the Scaler system keeps its client."""
