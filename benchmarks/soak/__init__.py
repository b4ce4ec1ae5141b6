"""Everything at once, for as long as you like: see :mod:`benchmarks.soak.__main__`."""
