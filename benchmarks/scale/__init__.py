"""How far one scheduler goes: many workers, clients, tasks and objects. See ``docs/scale.md``."""
