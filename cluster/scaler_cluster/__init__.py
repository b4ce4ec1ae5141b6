"""The engine: cores that decide, shells that wait and send, and what users hold of it.

``CONTRIBUTING.md`` has a map of the packages; each package says at its head how it works.
"""

__version__ = "0.1.0"
