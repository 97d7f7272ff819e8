"""Gaussian means along a line, within every client, in time linear in its nodes.

On differences x of at most L, the kernel exp(−x²) is a Fourier series of the period T, to within 2⁻⁵³:

    exp(−x²) = Σ_m c_m cos(ω_m x),  ω_m = 2πm / T,  c_0 = √π / T,  c_m = 2 √π exp(−ω_m² / 4) / T

Its repetitions are T − L away, and its terms vanish beyond a frequency that does not depend on L, so that
T = L + r and r T / π terms are enough, r² = 53 ln 2. As cos(ω (s − t)) = cos ωs cos ωt + sin ωs sin ωt, a sum
over the nodes j with weights exp(−(s_i − s_j)²) is a product of features of i with sums over j of features of
j: the n² weights are never made. Sums are in double precision: a node far from all others has a weight of its
own alone, 1, beside terms as large as the client.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedsub.methods.stacked.segments import Segments

REACH = math.sqrt(53 * math.log(2))
"""r: exp(−r²) is what double precision rounds to."""


def gaussian_means(h: Tensor, places: Tensor, segments: Segments) -> Tensor:
    """Σ_j κ_ij h_j / Σ_j κ_ij with κ_ij = exp(−(s_i − s_j)²), over the rows j of i's client.

    h is (n, width), places s are (n,); returns (n, width).
    """
    s = segments.pad(places.unsqueeze(1)).double()
    # Counted from the client's mean, which is where rows that fill up are put.
    centre = s.detach().sum(dim=1) / segments.sizes.clamp(min=1).to(s.device).unsqueeze(1)
    s = (s - centre.unsqueeze(1)) * segments.filled.unsqueeze(2)
    # The last column counts; what fills up is zero and has no part in any sum.
    counted = segments.pad(torch.cat([h, h.new_ones(len(h), 1)], dim=1)).double()
    # Where a run diverges there is no span: what follows is NaN, as its loss will be.
    span = float((s.detach().amax(dim=1) - s.detach().amin(dim=1)).max().nan_to_num(0, 0))
    period = span + REACH
    terms = math.ceil(REACH * period / math.pi)
    if 2 * terms + 1 < segments.longest:
        features = _features(s, period, terms)
        sums = features @ (features.transpose(1, 2) @ counted)
    else:
        sums = (-(s - s.transpose(1, 2)).square()).exp() @ counted
    rows = segments.unpad(sums)
    return (rows[:, :-1] / rows[:, -1:]).to(h.dtype)


def _features(s: Tensor, period: float, terms: int) -> Tensor:
    """√c cos(ωs) and √c sin(ωs), (K, m, 2 · terms + 1), of s (K, m, 1)."""
    frequencies = torch.arange(1, terms + 1, dtype=s.dtype, device=s.device) * (2 * math.pi / period)
    c_0 = math.sqrt(math.pi) / period
    sizes = (2 * c_0 * torch.exp(-frequencies.square() / 4)).sqrt()
    angles = s * frequencies
    return torch.cat([torch.full_like(s, math.sqrt(c_0)), sizes * angles.cos(), sizes * angles.sin()], dim=2)
