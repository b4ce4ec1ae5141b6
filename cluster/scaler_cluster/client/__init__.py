"""What users hold: futures, and the client that hands them out."""
