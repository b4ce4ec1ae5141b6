"""The words of memory that a worker shares with its supervisor: what it runs, should it die."""

SLOT_SESSION, SLOT_TASK, SLOT_READY, SLOT_WORK, SLOT_TRACE = 0, 1, 2, 3, 4
SLOT_WORDS = 5
