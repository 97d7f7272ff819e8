# mypy: ignore-errors
"""Scores: share of the test nodes predicted, and how it was called."""


class Server:
    def __init__(self, clients):
        self.clients = clients

    def train(self, rounds):
        right = sum(client.right for client in self.clients) / sum(client.tested for client in self.clients)
        return right, self.clients[0].share * self.clients[0].lambda_1 * rounds / 100
