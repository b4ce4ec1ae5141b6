"""Large data: files in shared memory that every process of a machine maps."""
