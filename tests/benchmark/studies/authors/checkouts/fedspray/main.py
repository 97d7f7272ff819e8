# mypy: ignore-errors
"""The entry point of the played code, which prints what it found."""

import os

from client import Client
from server import Server


def load_data(name, path, files):
    raise FileNotFoundError("the worker hands the clients over")


def run(dataset_name, epochs, hidden, lr, lambda_1, proxy_dim, seed):
    found = load_data(dataset_name, "./data/", sorted(os.listdir("./partition/")))
    dataset, clients, train, _validation, test = found
    listed = [Client(dataset, train[number], test[number], lambda_1) for number in range(clients)]
    accuracy, minority = Server(listed).train(rounds=500)
    print(accuracy, minority)
