"""Doors for the programs of others: Dask's, Ray's, and those of Scaler's versions."""
