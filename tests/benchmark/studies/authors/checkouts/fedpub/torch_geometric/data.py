"""Plays torch_geometric's Data as far as it is used."""


class Data:
    def __init__(self, **values):
        self.__dict__.update(values)
