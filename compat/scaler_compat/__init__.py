"""Doors for the programs of others: Dask's."""
