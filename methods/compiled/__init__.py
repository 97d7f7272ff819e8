"""numba settings for compiled passes, and row loops in LLVM instructions that keep their sums in registers.

They stay: plain numba trains FedAvg 1.33 times as long (coauthor_cs, METIS, 10 clients) and, with tuples and
LLVM's SLP pass, FedIIH 1.31 times (Cora); processor seconds, one core of an AMD EPYC (Zen 5), 2026-11-28.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

FREE = {"nnan", "ninf", "nsz", "contract", "reassoc"}
"""Fast-math flags for sums. Division by an estimate is not allowed: the compiler does it where it vectorises
a loop, which depends on the arrays' memory addresses, so that equal runs could round differently."""

compile_pass = numba.njit(cache=True, fastmath=FREE, nogil=True, error_model="numpy")
"""Decorator for all compiled passes, those of `methods.stacked.kernels` and those of single modules.

numba caches a compiled pass until the pass's own file changes. After changing the loops below, touch the
files of the passes that call them.
"""

LANES = (128, 64, 32, 16, 4, 1)
"""Block sizes of columns that are summed together in registers; the largest that fits comes first."""

TOGETHER = 4
"""Number of entries to which `spread_rows` adds at once, so that each row is read once for all of them."""

LANES_TOGETHER = (32, 16, 4, 1)
"""Block sizes of columns in `spread_rows`, small enough that the sums of all its entries fit in registers."""

WIDEST = 16
"""Number of float32 values in the widest registers."""

_ALIGNED = types.float32.bitwidth // 8

_FUSED = ("contract",)
"""Flag for fused multiply-add where the processor has it; the order of operations stays."""

_NUMBERS = (types.float32, types.int32, types.int64)


class _Rows:
    """Arguments of a loop, and the operations from which loops are written."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.context, self.builder = context, builder
        self.values = [
            make_array(kind)(context, builder, value)
            if isinstance(kind, types.Array)
            else context.cast(builder, value, kind, types.intp)
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        """The arguments, with integers as wide as addresses."""
        self.places = signature.args[2].dtype
        """Element type of the third argument, `column`."""

    def shape(self, array: Any) -> Any:
        return cgutils.unpack_tuple(self.builder, array.shape)

    def add(self, first: Any, second: Any) -> Any:
        """Add two integers; the second may be a Python int."""
        return self.builder.add(first, first.type(second) if isinstance(second, int) else second)

    def multiply(self, first: Any, second: Any) -> Any:
        """Multiply two integers; the second may be a Python int."""
        return self.builder.mul(first, first.type(second) if isinstance(second, int) else second)

    def blocks(self, start: Any, end: Any, sizes: tuple[int, ...]) -> Iterator[tuple[int, Any]]:
        """Yield size and start of the blocks from `start` to `end`: as many of the first size as fit, then of
        the next. Each size is a loop, whose body is the code written for the yielded block."""
        for size in sizes:
            count = self.builder.udiv(self.builder.sub(end, start), start.type(size))
            with cgutils.for_range(self.builder, count) as block:
                yield size, self.add(start, self.multiply(block.index, size))
            start = self.add(start, self.multiply(count, size))

    def index(self, column: Any, entry: Any) -> Any:
        """Load an entry of `column` as an integer as wide as addresses."""
        value = self.builder.load(self.builder.gep(column.data, [entry]))
        return self.context.cast(self.builder, value, self.places, types.intp)

    def place(self, array: Any, entry: Any, lanes: int) -> Any:
        """Return the address of `lanes` numbers of an array from `entry` on."""
        vector = ir.VectorType(ir.FloatType(), lanes)
        return self.builder.bitcast(self.builder.gep(array.data, [entry]), vector.as_pointer())

    def load(self, array: Any, entry: Any, lanes: int) -> Any:
        return self.builder.load(self.place(array, entry, lanes), align=_ALIGNED)

    def store(self, numbers: Any, array: Any, entry: Any) -> None:
        self.builder.store(numbers, self.place(array, entry, numbers.type.count), align=_ALIGNED)

    def add_product(self, total: Any, value: Any, entry: Any, numbers: Any) -> None:
        """Add value[entry] times the vector `numbers` to the vector at the address `total`."""
        vector, none = numbers.type, numbers.type(ir.Undefined)
        spread = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
        factor = self.builder.load(self.builder.gep(value.data, [entry]))
        factor = self.builder.insert_element(none, factor, spread.type.element(0))
        factor = self.builder.shuffle_vector(factor, none, spread)
        product = self.builder.fmul(factor, numbers, flags=_FUSED)
        self.builder.store(self.builder.fadd(self.builder.load(total), product, flags=_FUSED), total)

    def sum(self, numbers: Any) -> Any:
        """Sum a vector's numbers, half by half, to a vector of one number."""
        while numbers.type.count > 1:
            half = numbers.type.count // 2
            parts = (
                ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(first, first + half)))
                for first in (0, half)
            )
            low, high = (self.builder.shuffle_vector(numbers, numbers, part) for part in parts)
            numbers = self.builder.fadd(low, high, flags=_FUSED)
        return numbers


def _loop(write: Callable[..., None]) -> Any:
    """Return an intrinsic whose instructions `write` gives; it takes contiguous arrays of `_NUMBERS`."""
    _, *names = inspect.signature(write).parameters.values()

    def emit(_typing: Any, *kinds: Any) -> tuple[Any, Callable[..., Any]] | None:
        arrays = [kind for kind in kinds if isinstance(kind, types.Array)]
        if not all(each.layout == "C" and each.dtype in _NUMBERS for each in arrays):
            return None

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            rows = _Rows(context, builder, signature, arguments)
            write(rows, *rows.values)
            return context.get_dummy_value()

        return types.void(*kinds), generate

    first = inspect.Parameter("typing", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    emit.__signature__ = inspect.Signature([first, *names])  # type: ignore[attr-defined]
    emit.__name__, emit.__qualname__ = write.__name__, write.__qualname__
    return intrinsic(emit)


@_loop
def sum_rows(rows: Any, start: Any, end: Any, column: Any, value: Any, h: Any, out: Any, row: Any) -> None:
    """out[row] = Σ value[e] · h[column[e]] over the entries e from start to end; h and out (…, width).

    Here and below, row and entry indices of an array with more dimensions count through all of them.
    """
    width = rows.shape(h)[-1]
    for lanes, offset in rows.blocks(width.type(0), width, LANES):
        total = cgutils.alloca_once_value(rows.builder, ir.VectorType(ir.FloatType(), lanes)(None))
        for _, entry in rows.blocks(start, end, (1,)):
            index = rows.multiply(rows.index(column, entry), width)
            rows.add_product(total, value, entry, rows.load(h, rows.add(index, offset), lanes))
        rows.store(rows.builder.load(total), out, rows.add(rows.multiply(row, width), offset))


@_loop
def multiply_rows(rows: Any, start: Any, end: Any, column: Any, h: Any, own: Any, row: Any, out: Any) -> None:
    """out[e] = ⟨h[column[e]], own[row]⟩ for the entries e from start to end, own[row] read once; h and own
    (…, width)."""
    builder, width = rows.builder, rows.shape(h)[-1]
    for _, entry in rows.blocks(start, end, (1,)):
        rows.store(ir.VectorType(ir.FloatType(), 1)(None), out, entry)
    for lanes, offset in rows.blocks(width.type(0), width, LANES):
        # Parts are as wide as the widest registers: they are added to each other before one part is summed.
        size = min(lanes, WIDEST)

        def parts(array: Any, index: Any, lanes: int = lanes, offset: Any = offset, size: int = size) -> Any:
            first = rows.add(rows.multiply(index, width), offset)
            return [rows.load(array, rows.add(first, place), size) for place in range(0, lanes, size)]

        known = parts(own, row)
        for _, entry in rows.blocks(start, end, (1,)):
            message = parts(h, rows.index(column, entry))
            total = builder.fmul(message[0], known[0], flags=_FUSED)
            for left, right in zip(message[1:], known[1:], strict=True):
                total = builder.fadd(total, builder.fmul(left, right, flags=_FUSED), flags=_FUSED)
            rows.store(builder.fadd(rows.load(out, entry, 1), rows.sum(total), flags=_FUSED), out, entry)


@_loop
def spread_rows(
    rows: Any, start: Any, end: Any, column: Any, value: Any, h: Any, first: Any, out: Any
) -> None:
    """out[column[e]] += Σ_j value[first + j, e] · h[first + j] for the entries e from start to end; value
    (…, steps, entries), 0 ≤ j < steps, h and out (…, width)."""
    *_, steps, entries = rows.shape(value)
    width = rows.shape(h)[-1]
    for size, entry in rows.blocks(start, end, (TOGETHER, 1)):
        group = [rows.add(entry, place) for place in range(size)]
        targets = [rows.multiply(rows.index(column, each), width) for each in group]
        for lanes, offset in rows.blocks(width.type(0), width, LANES_TOGETHER):
            zero = ir.VectorType(ir.FloatType(), lanes)(None)
            totals = [cgutils.alloca_once_value(rows.builder, zero) for _ in group]
            for _, step in rows.blocks(first, rows.add(first, steps), (1,)):
                numbers = rows.load(h, rows.add(rows.multiply(step, width), offset), lanes)
                for each, total in zip(group, totals, strict=True):
                    rows.add_product(total, value, rows.add(rows.multiply(step, entries), each), numbers)
            # One after the other, because two entries may have the same row.
            for target, total in zip(targets, totals, strict=True):
                place = rows.add(target, offset)
                sums = rows.builder.fadd(rows.load(out, place, lanes), rows.builder.load(total), flags=_FUSED)
                rows.store(sums, out, place)
