"""Loops over rows, for compiled passes, in LLVM's instructions, so that sums stay in registers.

A loop over the columns, once vectorised, writes them to memory and reads them again every few entries, which
takes twice the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

LANES = (128, 64, 32, 16, 4, 1)
"""Columns that are summed side by side in registers, the most that fit first."""

TOGETHER = 4
"""Entries that rows are spread to side by side: what is read of a row serves them all."""

LANES_TOGETHER = (32, 16, 4, 1)
"""Columns of each of them, so few that their sums have room in the registers."""

WIDEST = 16
"""Numbers in the widest registers."""

_ALIGNED = types.float32.bitwidth // 8

_FUSED = ("contract",)
"""A product and a sum in one where the processor can, all in the order written."""


def _fit(numbers: tuple[Any, ...], whole: Any) -> bool:
    """Whether the arrays are contiguous, and those of numbers float32."""
    contiguous = all(array.layout == "C" for array in (*numbers, whole))
    return contiguous and all(array.dtype == types.float32 for array in numbers)


class _Rows:
    """What the loops are written with, and their arguments."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.context, self.builder = context, builder
        self.values = [
            make_array(kind)(context, builder, value)
            if isinstance(kind, types.Array)
            else context.cast(builder, value, kind, types.intp)
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        """The arguments, whole numbers as wide as addresses."""

    def shape(self, array: Any) -> Any:
        return cgutils.unpack_tuple(self.builder, array.shape)

    def add(self, first: Any, second: Any) -> Any:
        """Of whole numbers; the second may be one that is known now."""
        return self.builder.add(first, first.type(second) if isinstance(second, int) else second)

    def multiply(self, first: Any, second: Any) -> Any:
        """As `add` adds."""
        return self.builder.mul(first, first.type(second) if isinstance(second, int) else second)

    def blocks(self, start: Any, end: Any, sizes: tuple[int, ...]) -> Iterator[tuple[int, Any]]:
        """Sizes and starts of the blocks between two whole numbers, as many of the first size as fit, then of
        the next: what is written for one is repeated by a loop for each size."""
        for size in sizes:
            count = self.builder.udiv(self.builder.sub(end, start), start.type(size))
            with cgutils.for_range(self.builder, count) as block:
                yield size, self.add(start, self.multiply(block.index, size))
            start = self.add(start, self.multiply(count, size))

    def index(self, column: Any, kind: Any, entry: Any) -> Any:
        """A whole number of an array."""
        value = self.builder.load(self.builder.gep(column.data, [entry]))
        return self.context.cast(self.builder, value, kind.dtype, types.intp)

    def place(self, array: Any, entry: Any, lanes: int) -> Any:
        """Where so many numbers of an array stand."""
        vector = ir.VectorType(ir.FloatType(), lanes)
        return self.builder.bitcast(self.builder.gep(array.data, [entry]), vector.as_pointer())

    def load(self, array: Any, entry: Any, lanes: int) -> Any:
        return self.builder.load(self.place(array, entry, lanes), align=_ALIGNED)

    def store(self, numbers: Any, array: Any, entry: Any) -> None:
        self.builder.store(numbers, self.place(array, entry, numbers.type.count), align=_ALIGNED)

    def add_product(self, total: Any, value: Any, entry: Any, numbers: Any) -> None:
        """A number of an array times the vector, added to the vector at the address `total`."""
        vector, none = numbers.type, numbers.type(ir.Undefined)
        spread = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
        factor = self.builder.load(self.builder.gep(value.data, [entry]))
        factor = self.builder.insert_element(none, factor, spread.type.element(0))
        factor = self.builder.shuffle_vector(factor, none, spread)
        product = self.builder.fmul(factor, numbers, flags=_FUSED)
        self.builder.store(self.builder.fadd(self.builder.load(total), product, flags=_FUSED), total)

    def sum(self, numbers: Any) -> Any:
        """Of a vector's numbers, in any order, as a vector of one."""
        while numbers.type.count > 1:
            half = numbers.type.count // 2
            parts = (
                ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(first, first + half)))
                for first in (0, half)
            )
            low, high = (self.builder.shuffle_vector(numbers, numbers, part) for part in parts)
            numbers = self.builder.fadd(low, high, flags=_FUSED)
        return numbers


_Emitted = tuple[Any, Callable[..., Any]] | None


def _emit_sum(
    _typing: Any, start: Any, end: Any, column: Any, value: Any, h: Any, out: Any, row: Any
) -> _Emitted:
    """out[row] = Σ value[e] · h[column[e]] over the entries e from start to end; h and out (…, width).

    Here as below numbers are float32 and arrays contiguous; the rows and entries of one with more dimensions
    are counted on through them.
    """
    if not _fit((value, h, out), column):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = _Rows(context, builder, signature, arguments)
        start, end, column, value, h, out, row = rows.values
        width = rows.shape(h)[-1]
        for lanes, offset in rows.blocks(width.type(0), width, LANES):
            total = cgutils.alloca_once_value(builder, ir.VectorType(ir.FloatType(), lanes)(None))
            for _, entry in rows.blocks(start, end, (1,)):
                index = rows.multiply(rows.index(column, signature.args[2], entry), width)
                rows.add_product(total, value, entry, rows.load(h, rows.add(index, offset), lanes))
            rows.store(builder.load(total), out, rows.add(rows.multiply(row, width), offset))
        return context.get_dummy_value()

    return types.void(start, end, column, value, h, out, row), generate


def _emit_products(
    _typing: Any, start: Any, end: Any, column: Any, h: Any, own: Any, row: Any, out: Any
) -> _Emitted:
    """out[e] = ⟨h[column[e]], own[row]⟩ for the entries e from start to end, own[row] read once; h and own
    (…, width)."""
    if not _fit((h, own, out), column):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = _Rows(context, builder, signature, arguments)
        start, end, column, h, own, row, out = rows.values
        width = rows.shape(h)[-1]
        for _, entry in rows.blocks(start, end, (1,)):
            rows.store(ir.VectorType(ir.FloatType(), 1)(None), out, entry)
        for lanes, offset in rows.blocks(width.type(0), width, LANES):
            # Parts as wide as the widest registers: they are added up before the numbers of one are.
            size = min(lanes, WIDEST)

            def parts(
                array: Any, index: Any, lanes: int = lanes, offset: Any = offset, size: int = size
            ) -> Any:
                first = rows.add(rows.multiply(index, width), offset)
                return [rows.load(array, rows.add(first, place), size) for place in range(0, lanes, size)]

            known = parts(own, row)
            for _, entry in rows.blocks(start, end, (1,)):
                message = parts(h, rows.index(column, signature.args[2], entry))
                total = builder.fmul(message[0], known[0], flags=_FUSED)
                for left, right in zip(message[1:], known[1:], strict=True):
                    product = builder.fmul(left, right, flags=_FUSED)
                    total = builder.fadd(total, product, flags=_FUSED)
                before = rows.load(out, entry, 1)
                rows.store(builder.fadd(before, rows.sum(total), flags=_FUSED), out, entry)
        return context.get_dummy_value()

    return types.void(start, end, column, h, own, row, out), generate


def _emit_spread(
    _typing: Any, start: Any, end: Any, column: Any, value: Any, h: Any, first: Any, out: Any
) -> _Emitted:
    """out[column[e]] += Σ_j value[first + j, e] · h[first + j] for the entries e from start to end; value
    (…, steps, entries), j below its steps, h and out (…, width)."""
    if not _fit((value, h, out), column):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = _Rows(context, builder, signature, arguments)
        start, end, column, value, h, first, out = rows.values
        *_, steps, entries = rows.shape(value)
        width = rows.shape(h)[-1]
        for size, entry in rows.blocks(start, end, (TOGETHER, 1)):
            group = [rows.add(entry, place) for place in range(size)]
            targets = [rows.multiply(rows.index(column, signature.args[2], each), width) for each in group]
            for lanes, offset in rows.blocks(width.type(0), width, LANES_TOGETHER):
                zero = ir.VectorType(ir.FloatType(), lanes)(None)
                totals = [cgutils.alloca_once_value(builder, zero) for _ in group]
                for _, step in rows.blocks(first, rows.add(first, steps), (1,)):
                    numbers = rows.load(h, rows.add(rows.multiply(step, width), offset), lanes)
                    for each, total in zip(group, totals, strict=True):
                        rows.add_product(total, value, rows.add(rows.multiply(step, entries), each), numbers)
                # One after the other: two entries may have one row.
                for target, total in zip(targets, totals, strict=True):
                    place = rows.add(target, offset)
                    before = rows.load(out, place, lanes)
                    rows.store(builder.fadd(before, builder.load(total), flags=_FUSED), out, place)
        return context.get_dummy_value()

    return types.void(start, end, column, value, h, first, out), generate


sum_rows: Any = intrinsic(_emit_sum)
multiply_rows: Any = intrinsic(_emit_products)
spread_rows: Any = intrinsic(_emit_spread)
