"""The series compared with the kernel computed node by node, its gradients and its two limits."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedsub.methods.fedaux import gaussian_means
from fedsub.methods.stacked.segments import Segments


def kernel_means(h: Tensor, places: Tensor) -> Tensor:
    """Return the kernel means, computed node by node."""
    rows = []
    for place in places:
        weights = torch.exp(-((place - places) ** 2))
        rows.append((weights[:, None] * h).sum(0) / weights.sum())
    return torch.stack(rows)


def drawn(sizes: list[int], spread: float, offset: float = 0.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = sum(sizes)
    places = spread * torch.rand(rows, generator=generator, dtype=torch.float64) + offset
    return torch.randn(rows, 4, generator=generator, dtype=torch.float64), places


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 120), min_size=1, max_size=4),
    spread=st.floats(0, 40),
    offset=st.floats(-50, 50),
)
def test_it_is_the_kernel_written_out(sizes: list[int], spread: float, offset: float) -> None:
    h, places = drawn(sizes, spread, offset)
    found = gaussian_means(h, places, Segments(torch.tensor(sizes)))
    expected = map(kernel_means, h.split(sizes), places.split(sizes))
    torch.testing.assert_close(found, torch.cat([*expected]), atol=1e-10, rtol=1e-9)


def test_a_lone_row_keeps_its_own_among_thousands() -> None:
    h, places = drawn([4000], 1.0)
    h, places = h.float(), places.float()
    places[7] = 30.0
    found = gaussian_means(h, places, Segments(torch.tensor([4000])))
    torch.testing.assert_close(found[7], h[7], atol=1e-6, rtol=1e-6)


def test_places_that_diverged_give_no_number() -> None:
    h, places = drawn([60], 1.0)
    places[3] = torch.nan
    assert gaussian_means(h, places, Segments(torch.tensor([60]))).isnan().all()
