from modules.federated import Server  # noqa: F401
