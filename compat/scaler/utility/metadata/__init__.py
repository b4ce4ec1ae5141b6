"""Where the Scaler system keeps what travels with results."""
