"""FedAvg's server."""

from modules.federated import Server  # noqa: F401
