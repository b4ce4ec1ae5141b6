"""Where the Scaler system keeps the process that runs tasks."""
