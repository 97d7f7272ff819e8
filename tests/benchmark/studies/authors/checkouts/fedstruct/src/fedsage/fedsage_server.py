# mypy: ignore-errors
"""FedSage+ of the played code: trained as any other."""

from src.GNN.GNN_server import GNNServer


class FedSAGEServer(GNNServer):
    def train_fedSage_plus(self, model, **asked):
        return {model: self.joint_train_g(**asked)}
