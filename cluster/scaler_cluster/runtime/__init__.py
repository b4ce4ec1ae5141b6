"""Where things wait: the processes and threads that move bytes between links and cores."""
