"""The settings of everything that a user can start: flags, keys of TOML and defaults in one place.

Theory of operation
-------------------

A *setting* is a field of a frozen dataclass in ``sections.py``. There is one class for each command
and for the table of the same name in a TOML file: ``SchedulerSettings`` is what
``scaler_scheduler`` accepts, and what a file may have under ``[scheduler]``. The field's metadata
holds all that is to be known of it: its help, its short flags, the names that other versions have
for it, and its *kind*. ``Section.options()`` reads that back as a list of ``Option`` records, from
which parsers, help texts, completions, the tables in ``docs/settings.md`` and the tests are made.
So a new setting is one new field here, and one line where a process is told of it.

A *kind* (``values.py``) says how a value is written, as text on a command line, as a value of TOML
or as an argument of a program, and what is wrong with one that cannot work. It raises ValueError
with the end of a sentence; the caller, who knows what the user called the setting, puts the
beginning in front. That is why an error names a flag to one user, a file's line to another, and an
argument of ``SchedulerClusterCombo`` to a third.

``load.py`` puts values together: the command line first, then the command's own table of a
``--config`` file, then the defaults. It makes the settings whole in one step, or raises ConfigError
with one line that says what to change. ``scaler`` reads all the tables of one file, and makes each
of them whole in the same way, before it starts anything.

Nothing here starts anything, or reads a clock. What a setting means to a process is said elsewhere:
``process/process_config.py`` turns settings into what each process is told.
"""
