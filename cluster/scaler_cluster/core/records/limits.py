"""Limits of what a worker is given ahead, which the records start from."""

WINDOW_S = 0.012
"""Work given ahead, three reports' worth. What one report asks for is given after the report was
made, and is taken in with the next report. The window is short so that work can go elsewhere."""
TASKS_MAX = 4096
"""Tasks given ahead at most, however short they are measured: bounds what a death can lose."""
