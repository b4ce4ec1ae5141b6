"""The settings of everything that can be started: flags, keys of TOML and defaults in one place.

``sections.py`` lists them, ``values.py`` says what each kind of value looks like, ``load.py`` puts
command line, file and defaults together. None of it starts anything.
"""
