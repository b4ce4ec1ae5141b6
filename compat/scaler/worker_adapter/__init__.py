"""Worker adapters, at the path that the Scaler system has them at."""
