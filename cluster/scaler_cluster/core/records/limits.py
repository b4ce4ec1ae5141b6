"""Limits of what a worker is given ahead, which the records start from."""

WINDOW_S = 0.012
"""Work given ahead, three reports' worth. What one report asks for is given after the report was
made, and is taken in with the next report. The window is short so that work can go elsewhere."""
FLUSH_S = 0.004
"""Results wait about this long for more of them. A report costs worker, scheduler and client
some 0.2 ms each when it finds their caches cold: every 2 ms, that was a tenth of a core."""
UNMEASURED_S = 0.02
"""What a task is taken to last before one of its kind was measured: one fills the window."""
TASKS_MAX = 4096
"""Tasks given ahead at most, however short they are measured: bounds what a death can lose."""
