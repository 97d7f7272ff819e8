"""A graph or a client's part of it."""


class Graph:
    def __init__(self, **values):
        self.__dict__.update(values)
