"""What is measured, a module per question; :mod:`benchmarks.catalogue` has them all by name."""
