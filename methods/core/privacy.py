"""Differential privacy of clients: their updates are clipped, and noised before they are sent.

McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018. With u a client's
update, all its shared parameters as one vector, C the clipping norm and σ the noise:

    u ← u · min(1, C / ‖u‖₂) + N(0, σ² C²)

Every client adds its own noise, so that not even the server sees an update without it. In Σ_k p_k u_k one
client weighs at most max p_k C beside a deviation of σ C √(Σ p_k²), which is no less than σ times that.
Neighbours are two federations of the same clients with the same weights, in one of which all of a client's
updates are zero before the noise (zero-out neighbours). That a client takes part at all is not hidden: its
weight moves the others', and its noise comes and goes with it. Between any two updates of a client the
distance is 2C: that guarantee is the one of σ/2. Two ε are reported for the same δ, by Rényi divergences
(Mironov 2017) as Opacus counts them: against those who see the averaged models alone and not who took part,
with the share of clients drawn in each round as the accountant's sampling rate (it assumes Poisson sampling,
where a round here draws a fixed number; 1 for a method whose averages tell who took part), and against the
server, for the client that takes part most often. Neither covers the choice of the reported round by
validation scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedsub.datasets.extras import needed
from fedsub.methods.core.draws import Draws


def privatised(update: Tensor, clip: float, noise: float, draws: Draws) -> Tensor:
    """Updates, (K, P), as they are sent, with C = `clip`, above 0, and σ = `noise`.

    One that is not above C stays to the digit before the noise.
    """
    length = torch.linalg.vector_norm(update, dim=1, keepdim=True)
    clipped = torch.where(length > clip, update * (clip / length.clamp(min=clip)), update)
    return clipped.add_(draws.normal(update), alpha=noise * clip) if noise else clipped


def check_accountant() -> Any:
    """Opacus' accountants. Raises UserError where it is not installed."""
    return needed("opacus", "privacy", "privacy_noise", "set privacy_noise=0").accountants


def epsilon(noise: float, rates: Sequence[float], delta: float) -> float:
    """ε of one round for each of the sampling rates; 0 without any round.

    Raises UserError where Opacus is not installed.
    """
    accountant = check_accountant().RDPAccountant()
    for rate in rates:
        accountant.step(noise_multiplier=noise, sample_rate=rate)
    return float(accountant.get_epsilon(delta)) if rates else 0.0
