"""Compiled passes divide exactly."""

import numpy as np

from fedsub.methods.compiled import compile_pass


@compile_pass
def _divide(above: np.ndarray, below: np.ndarray, out: np.ndarray) -> None:
    """out = above / √below, entry by entry."""
    for place in range(len(above)):
        out[place] = above[place] / np.sqrt(below[place])


def test_a_pass_divides_as_every_processor_does() -> None:
    """Estimated quotients would round full registers differently from the remaining entries."""
    generator = np.random.default_rng(0)
    above, below = generator.random((2, 1003), dtype=np.float32) + np.float32(0.5)
    out = np.empty_like(above)
    _divide(above, below, out)
    np.testing.assert_array_equal(out, above / np.sqrt(below))
