"""What a serializer sees of a task: function, two arguments, result. ``client`` is there."""


def add(a, b):
    return a + b


client.submit(add, 1, 2)
