"""What crosses a socket: messages, and how they become bytes. No I/O here."""
