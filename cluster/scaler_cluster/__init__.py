"""The engine room: wire format, sans-IO core, links, and the processes that run them."""

__version__ = "0.1.0"
