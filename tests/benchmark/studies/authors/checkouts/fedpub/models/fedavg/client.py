from modules.federated import Client  # noqa: F401
