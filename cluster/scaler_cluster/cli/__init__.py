"""The commands that start parts of a cluster.

Theory of operation
-------------------
A command makes its settings from flags and a file (``config/load.py``), makes the record that its
process is told (``process/process_config.py``), and runs in its own process what an embedded
cluster runs in a child: ``runtime.scheduler``, ``runtime.supervisor`` or
``runtime.storage_server``. A signal takes the place of the parent's lifeline. ``shared.py`` has
what all commands do in the same way: the log, the signals, one line on stderr if something is
wrong, and the exit status.

``stack_file.py`` is different: ``scaler`` runs no role itself. It checks every table of its file
before it starts anything, starts each part as a child, and ends all of them when one ends.

Commands that show a cluster are in ``scaler_monitoring``.
"""
