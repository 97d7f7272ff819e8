"""Stacked parameters of K clients: initial values, names and checks."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from fedsub.datasets.errors import UserError, unknown

Parameters = dict[str, Tensor]
Weights = Mapping[str, Tensor]


def uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> Tensor:
    """Draw uniformly from ±bound."""
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)


def glorot(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Draw uniformly from ±√(6 / (in + out)), Glorot & Bengio 2010 eq. (16); `shape` is (in, out)."""
    return uniform(shape, math.sqrt(6 / sum(shape)), generator)


def linear_start(
    inner: int, outer: int, generator: torch.Generator, weights: Iterable[str] = ("weight",)
) -> Parameters:
    """`weights` and `bias` of a linear layer, uniform in ±1/√in, torch's default."""
    bound = 1 / math.sqrt(inner)
    start = {name: uniform((inner, outer), bound, generator) for name in weights}
    return start | {"bias": uniform((outer,), bound, generator)}


def prefixed(prefix: str, parameters: Weights) -> Parameters:
    """The same parameters, named `prefix.<name>`."""
    return {f"{prefix}.{name}": value for name, value in parameters.items()}


def unprefixed(prefix: str, parameters: Weights) -> Parameters:
    """The parameters named `prefix.<name>`, as <name> → tensor."""
    start = f"{prefix}."
    return {name[len(start) :]: value for name, value in parameters.items() if name.startswith(start)}


def stack(parameters: Weights, clients: int, device: torch.device | str = "cpu") -> Parameters:
    """Give every client the same start: repeat each parameter along a new leading axis, as a leaf."""
    return {
        name: value.unsqueeze(0).repeat(clients, *(1,) * value.dim()).to(device).requires_grad_()
        for name, value in parameters.items()
    }


def check_parameters(
    method: str, parameters: Weights, shared: Iterable[str], unshared: Iterable[str], clients: int
) -> None:
    """Raise UserError, beginning with the method's name, for a parameter that no step would train, one
    without a slice for each client (or one slice for all), an unknown name in `shared`, and a prefix in
    `unshared` with which no name begins: the parameters it means would be shared."""
    for name, value in parameters.items():
        if not (value.requires_grad and value.is_leaf):
            raise UserError(
                f"{method}'s parameter {name} would never be trained: make it a leaf that requires a "
                "gradient, as methods.stacked.parameters.stack does"
            )
        if value.dim() == 0 or len(value) not in (1, clients):
            raise UserError(
                f"{method}'s parameter {name} has the shape {tuple(value.shape)} and there are {clients} "
                "clients: give it a slice for each, as methods.stacked.parameters.stack does"
            )
    for name in shared:
        if name not in parameters:
            raise unknown("parameter", name, parameters, f" in shared() of {method}")
    if isinstance(unshared, str):
        raise UserError(f"{method}'s unshared must be a tuple of names: write ({unshared!r},)")
    for word in unshared:
        if not any(begins_with(name, [word]) for name in parameters):
            raise unknown("parameter", word, parameters, f" in unshared of {method}")


def begins_with(name: str, words: Iterable[str]) -> bool:
    """Whether a parameter's name equals one of the words or begins with it as whole dotted parts."""
    return f"{name}.".startswith(tuple(f"{word}." for word in words))


def check_answer(method: str, answer: Weights, sent: Weights, shared: Weights) -> None:
    """Raise UserError, beginning with the method's name, for a value that is no tensor, a shape with neither
    one slice for all clients nor one for each, and a shared parameter that was sent and is missing."""
    for name, value in answer.items():
        if not isinstance(value, Tensor):
            raise UserError(f"{method}'s aggregate() returns {name} as {type(value).__name__}, not a tensor")
        if name not in shared:
            continue
        wanted = shared[name].shape
        if value.dim() != len(wanted) or value.shape[1:] != wanted[1:] or len(value) not in (1, wanted[0]):
            raise UserError(
                f"{method}'s aggregate() returns {name} with shape {tuple(value.shape)}: it must be "
                f"{(1, *wanted[1:])}, one slice for all clients, or {tuple(wanted)}"
            )
    if missing := [name for name in sent if name in shared and name not in answer]:
        raise UserError(
            f"{method}'s aggregate() leaves out {missing[0]}: return every parameter that was sent, or name"
            " in `unshared` the prefixes of parameters that stay with the clients"
        )
