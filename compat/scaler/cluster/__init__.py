"""Where the Scaler system keeps its cluster classes."""
