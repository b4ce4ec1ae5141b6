"""Links carry frames between peers; ``zmq_link`` for real, ``memory_link`` within one thread."""
