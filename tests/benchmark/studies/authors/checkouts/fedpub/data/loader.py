"""Reads a client's data."""


def get_data(args, client_id):
    raise FileNotFoundError("the worker hands the clients over")


class DataLoader:
    def __init__(self, args):
        self.args, self.n_workers = args, 1

    def switch(self, client_id):
        if self.n_workers:
            raise RuntimeError("a process for each batch")
        (self.data,) = get_data(self.args, client_id=client_id)
