"""A folder of the Scaler system."""
