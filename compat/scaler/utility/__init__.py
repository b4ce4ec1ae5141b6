"""Where the Scaler system keeps its helpers."""
