import torch
import torch.nn.functional as functional
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.methods.stacked.losses import cross_entropy


@settings(max_examples=40)
@given(
    st.integers(1, 30),
    st.integers(1, 9),
    st.integers(0, 1000),
    st.floats(0.1, 80),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_cross_entropy_and_its_gradient_are_torchs(rows, classes, seed, spread, dtype):
    generator = torch.Generator().manual_seed(seed)
    output = spread * torch.randn(30, classes, generator=generator, dtype=dtype)
    chosen = torch.randperm(30, generator=generator)[:rows]
    labels = torch.randint(classes, (rows,), generator=generator)
    weight = torch.rand(rows, generator=generator, dtype=dtype)
    output.requires_grad_()
    loss = cross_entropy(output, chosen, labels, weight)
    expected = torch.dot(functional.cross_entropy(output[chosen], labels, reduction="none"), weight)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-4)
    (got,) = torch.autograd.grad(3 * loss, output)
    (wanted,) = torch.autograd.grad(3 * expected, output)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
