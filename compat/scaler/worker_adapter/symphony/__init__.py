"""The adapter for IBM Spectrum Symphony, at the path that the Scaler system has it at."""
