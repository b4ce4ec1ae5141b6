"""The page of benchmarks.report_all, made of the raw data alone."""
