"""Where the Scaler system keeps the parts of a worker."""
