"""The settings of each command, at the paths that the Scaler system has them at."""
