"""SVG drawings of intervals, Pareto fronts, curves and mean ranks, in the colours of the page."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 420, 270
LEFT, RIGHT, TOP, BOTTOM = 40, 96, 20, 36
LETTER = 7.2
LETTERS = 27
"""Largest number of letters of a name in a scatter plot; the mark's title has the whole name."""
LABELS = 6
"""Largest number of names in a drawing."""
Ticks = Sequence[tuple[float, str]]
"""Coordinate and text of each tick of an axis."""


def strip(interval: tuple[float, float] | None, middle: float, reach: float, band: float = 0.0) -> Markup:
    """Draw an interval on a line from −reach to reach with 0 in the middle; `band` is δ, drawn as ±δ. An end
    beyond the line has an arrow."""
    ends = interval or (middle, middle)

    def at(value: float) -> float:
        return round(60 + 54 * max(-1.0, min(1.0, value / (reach or 1.0))), 1)

    parts = [Markup('<svg class="strip" viewBox="0 0 120 16" aria-hidden="true">')]
    if band:
        shape = '<rect class="band" x="{}" y="1" width="{}" height="14"/>'
        parts.append(Markup(shape).format(at(-band), round(at(band) - at(-band), 1)))
    parts.append(Markup('<path class="zero" d="M60 0V16"/>'))
    parts.append(Markup('<path class="range" d="M{} 8H{}"/>').format(at(ends[0]), at(ends[1])))
    for away, shape in ((ends[0] < -reach, "M6 4L1 8L6 12Z"), (ends[1] > reach, "M114 4L119 8L114 12Z")):
        if away:
            parts.append(Markup('<path class="tip" d="{}"/>').format(shape))
    parts.append(Markup('<circle class="middle" cx="{}" cy="8" r="3.5"/></svg>').format(at(middle)))
    return Markup("").join(parts)


@dataclass(frozen=True)
class Point:
    """A method in a scatter plot."""

    name: str
    x: float
    y: float
    told: str
    is_front: bool


def scatter(points: Sequence[Point], x_title: str, y_title: str, said: str) -> Markup:
    """Draw points over a logarithmic axis with 0 at the left end. The points of the front are joined, and up
    to `LABELS` of them are named."""
    some = [point.x for point in points if point.x > 0]
    least = min(some, default=1.0) / (3 if len(some) < len(points) else 1.2)
    most = max(some, default=1.0) * 1.2
    y, up = _upright([point.y for point in points])

    def x(value: float) -> float:
        share = math.log(max(value, least) / least) / math.log(most / least)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    marks = [10.0**power for power in powers if least <= 10.0**power <= most]
    if len(marks) < 2:
        marks = [
            part for power in powers for each in (1, 2, 5) if least <= (part := each * 10.0**power) <= most
        ]
    ticks = [(x(mark), f"{mark:g}") for mark in marks]
    if len(some) < len(points):
        ticks.insert(0, (LEFT, "0"))
    parts = [*_frame(ticks, up, x_title, y_title, said)]
    front = sorted((point for point in points if point.is_front), key=lambda point: point.x)
    steps = " ".join(f"H{x(point.x)} V{y(point.y)}" for point in front[1:])
    shape = Markup('<path class="front" d="M{} {} {} H{}"/>')
    parts.append(shape.format(x(front[0].x), y(front[0].y), steps, WIDTH - RIGHT))
    for point in points:
        mark = Markup('<circle class="{}" cx="{}" cy="{}" r="4"><title>{}</title></circle>')
        parts.append(mark.format("dot best" if point.is_front else "dot", x(point.x), y(point.y), point.told))
    named = []
    for point in front[-LABELS:]:
        name = _clipped(point.name)
        # A name that would leave the drawing is placed left of its point.
        is_left = x(point.x) + 7 + LETTER * len(name) > WIDTH
        place, kind = (x(point.x) - 7, "best end") if is_left else (x(point.x) + 7, "best")
        named.append((place, y(point.y), name, kind))
    parts += _names(named)
    return Markup("").join([*parts, Markup("</svg>")])


@dataclass(frozen=True)
class Line:
    """A curve."""

    name: str
    points: Sequence[tuple[float, float]]


def lines(drawn: Sequence[Line], x_title: str, y_title: str, said: str) -> Markup:
    """Draw up to `LABELS` curves, each with its own colour and dashes, and its name at the right end."""
    drawn = [line for line in drawn if line.points][:LABELS]
    y, up = _upright([value for line in drawn for _, value in line.points])
    last = max((place for line in drawn for place, _ in line.points), default=1.0)
    x = _axis(0, last, LEFT, WIDTH - RIGHT)
    ticks = [(x(tick), f"{tick:g}") for tick in _ticks(0, last)]
    parts = [*_frame(ticks, up, x_title, y_title, said)]
    named = []
    for number, line in enumerate(drawn):
        path = " L".join(f"{x(place)} {y(value)}" for place, value in line.points)
        place, end = line.points[-1]
        if len(line.points) == 1:
            mark = Markup('<circle class="dot best" cx="{}" cy="{}" r="4"/>')
            parts.append(mark.format(x(place), y(end)))
        shape = Markup('<path class="line line-{}" d="M{}"><title>{}: {:.1f} at the end</title></path>')
        parts.append(shape.format(number, path, line.name, end))
        named.append((WIDTH - RIGHT + 4.0, y(end), line.name, f"name-{number}"))
    return Markup("").join([*parts, *_names(named), Markup("</svg>")])


def small(points: Sequence[tuple[float, float]], last: float, low: float, high: float, said: str) -> Markup:
    """Draw a curve without names for a table's row, from 0 to `last` and from `low` to `high`, with a line at
    zero."""

    def at(place: float, value: float) -> str:
        return f"{3 + 114 * place / last:.1f} {3 + 50 * (high - value) / ((high - low) or 1.0):.1f}"

    shape = (
        '<svg class="small" viewBox="0 0 120 56" role="img" aria-label="{}">'
        '<path class="zero" d="M{} L{}"/><path class="line line-0" d="M{}"/></svg>'
    )
    curve = " L".join(at(*point) for point in points)
    return Markup(shape).format(said, at(0, 0), at(last, 0), curve)


def ranks(methods: Sequence[tuple[str, float]], groups: Sequence[tuple[int, int]], said: str) -> Markup:
    """Draw a critical-difference diagram of methods and their mean ranks, the best first: one row each, on
    a common axis. `groups` have the first and the last row of what is not separated: bars at the right."""
    left, right, step = LETTER * LETTERS, WIDTH - RIGHT, 15
    bottom = TOP + step * len(methods)
    most = max(*(rank for _, rank in methods), 2.0)
    x = _axis(1, most, left, right)

    def y(row: int) -> float:
        return TOP + step * (row + 0.5)

    opening = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">')
    parts = [opening.format(WIDTH, bottom + BOTTOM, said)]
    for tick in _ticks(1, most):
        parts.append(Markup('<path class="grid" d="M{} {}V{}"/>').format(x(tick), TOP, bottom))
        parts += [_text(x(tick), place, "mid", f"{tick:g}") for place in (TOP - 6, bottom + 15)]
    parts.append(_text((left + right) / 2, bottom + BOTTOM - 4, "mid", "mean rank"))
    for row, (name, rank) in enumerate(methods):
        parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(left, y(row), WIDTH))
        parts.append(_text(left - 5, y(row) + 4, "end", _clipped(name)))
        mark = Markup('<circle class="dot best" cx="{}" cy="{}" r="4"><title>{}: {:.2f}</title></circle>')
        parts.append(mark.format(x(rank), y(row), name, rank))
    gap = (RIGHT - 12) / max(len(groups), 1)
    for number, (first, last) in enumerate(groups):
        across = round(right + 10 + gap * number, 1)
        parts.append(Markup('<path class="range" d="M{} {}V{}"/>').format(across, y(first) - 5, y(last) + 5))
    return Markup("").join([*parts, Markup("</svg>")])


def _clipped(name: str) -> str:
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"


def _upright(values: Sequence[float]) -> tuple[Callable[[float], float], Ticks]:
    """Return the function from a value to its y coordinate, and the ticks of the vertical axis."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    # 4 % of the range stays free above and below.
    room = 0.04 * (high - low) or 1.0
    bottom, top = low - room, high + room
    place = _axis(top, bottom, TOP, HEIGHT - BOTTOM)
    return place, [(place(tick), f"{tick:g}") for tick in _ticks(bottom, top)]


def _axis(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return the function from a value to its coordinate on an axis from `low` to `high`."""
    return lambda value: round(start + (value - low) / (high - low) * (end - start), 1)


def _ticks(low: float, high: float) -> list[float]:
    """Return three to six round values between the ends."""
    power = 10.0 ** math.floor(math.log10((high - low) or 1.0))
    step = next(step for step in (power / 5, power / 2, power, 2 * power) if (high - low) / step <= 6)
    return [round(step * place, 10) for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _frame(across: Ticks, up: Ticks, x_title: str, y_title: str, said: str) -> list[Markup]:
    opening = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">')
    parts = [opening.format(WIDTH, HEIGHT, said)]
    for place, text in up:
        parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(LEFT, place, WIDTH - RIGHT))
        parts.append(_text(LEFT - 5, place + 4, "end", text))
    parts += [_text(place, HEIGHT - BOTTOM + 15, "mid", text) for place, text in across]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "mid", x_title))
    return [*parts, _text(2, TOP - 9, "faint", y_title)]


def _text(x: float, y: float, kind: str, text: str) -> Markup:
    return Markup('<text x="{}" y="{}" class="{}">{}</text>').format(x, y, kind, text)


def _names(named: Sequence[tuple[float, float, str, str]]) -> list[Markup]:
    """Return the labels, each moved down until it overlaps none before it, or up where the drawing ends."""
    parts: list[Markup] = []
    taken: list[tuple[float, float, float]] = []
    for x, y, name, kind in sorted(named, key=lambda item: item[1]):
        start = x - LETTER * len(name) if kind.endswith(" end") else x
        end = start + LETTER * len(name)
        beside = [other for other, left, right in taken if start < right and left < end]
        steps = (sign * 3 * step for sign in (1, -1) for step in range(HEIGHT))
        places = (y + 4 + step for step in steps if step <= 0 or y + step <= HEIGHT - BOTTOM)
        place = next(each for each in places if all(abs(each - other) >= 12 for other in beside))
        taken.append((place, start, end))
        parts.append(_text(x, round(place, 1), kind, name))
    return parts
