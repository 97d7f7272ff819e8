"""The server's arithmetic against the clients' parameters as plain vectors."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.methods.stacked.mixing import cosine, gram, mix, weighted_mean


def stacked(clients: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(clients, 3, 2, generator=generator),
        "bias": torch.randn(clients, 5, generator=generator),
    }


@settings(max_examples=40)
@given(clients=st.integers(1, 6), seed=st.integers(0, 99), still=st.sets(st.integers(0, 5)))
def test_similarities_are_those_of_whole_vectors(clients: int, seed: int, still: set[int]) -> None:
    parameters = stacked(clients, seed)
    for value in parameters.values():
        value[[client for client in still if client < clients]] = 0
    vectors = torch.cat([value.flatten(1) for value in parameters.values()], dim=1).double()
    found = gram(parameters.values())
    torch.testing.assert_close(found, vectors @ vectors.T, atol=1e-5, rtol=1e-5)
    # For a client that did not move every cosine is 0, as in torch, even that with itself.
    expected = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=2)
    torch.testing.assert_close(cosine(found), expected, atol=1e-5, rtol=1e-5)


def test_rounding_makes_no_cosine_above_one() -> None:
    products = torch.tensor([[1.0, 1 + 1e-7], [1 + 1e-7, 1.0]], dtype=torch.float64)
    assert cosine(products).tolist() == [[1, 1], [1, 1]]
    assert cosine(products * torch.tensor([[1.0, -1], [-1, 1]])).tolist() == [[1, -1], [-1, 1]]


def test_mixtures_are_sums_over_clients() -> None:
    parameters, matrix = stacked(4, 0), torch.rand(2, 4, generator=torch.Generator().manual_seed(1))
    for name, value in mix(matrix, parameters).items():
        expected = [sum(row[k] * parameters[name][k] for k in range(4)) for row in matrix]
        torch.testing.assert_close(value, torch.stack([torch.as_tensor(each) for each in expected]))
        torch.testing.assert_close(weighted_mean(parameters[name], matrix[0]), value[:1])
