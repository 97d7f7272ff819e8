"""FedGCN with enough hops is exact on the whole graph."""

import pytest
import torch

from fedsub.methods.core.base import Architecture
from tests.methods.federations import community_federation, make_method, small_federation


@pytest.mark.parametrize(
    ("network", "hops"),
    [
        (Architecture("gcn", (8, 6)), 2),
        (Architecture("gcn", (8,)), 1),
        (Architecture("gcn", (8, 6), head="convolution"), 3),
        (Architecture("sgc"), 2),
    ],
)
@pytest.mark.parametrize("kind", ["random", "dense", "community", "overlapping"])
@pytest.mark.parametrize("sent", ["sums", "features"])
def test_as_many_hops_as_convolutions_are_exact_on_any_partition(network, hops, kind, sent):
    federation = {
        "random": small_federation,
        "dense": lambda: small_federation(sparse=False),
        "community": community_federation,
        "overlapping": lambda: small_federation(10, scheme="metis-overlapping"),
    }[kind]()
    ours, fewer = (
        make_method("fedgcn", {"hops": each, "sent": sent}, federation, network) for each in (hops, hops - 1)
    )
    central = make_method("central", {}, federation, network)
    for method in (ours, fewer, central):
        method.build()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in central.parameters.items():
            value.add_(torch.randn(value.shape, generator=generator))
            for method in (ours, fewer):
                method.parameters[name].copy_(value)
    torch.testing.assert_close(ours.predict(), central.predict(), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(fewer.predict(), central.predict(), atol=1e-2)
