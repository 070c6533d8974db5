"""Pictures of schedules, played and not typed: a block matrix as text, a space-time diagram as SVG."""

from fractions import Fraction
from itertools import pairwise
from math import atan2, degrees, hypot, sqrt
from typing import Any

from .algorithms import parse, schedule
from .schedules import Recv, Schedule, Send, ranges
from .verifier import play, start

__all__ = ["draw"]

WIDTH = 100
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def draw(
    name: str, size: int, format: str = "text", collective: str = "allreduce", root: int = 0, **params: Any
) -> str:
    """Draw what every rank does in every step.

    Parameters
    ----------
    name, collective, root, **params
        As in `schedule`.
    size : int
        Number of ranks.
    format : {"text", "svg"}
        Text: a row per rank, a column per step, in it the peers sent to and then, for every block, how many
        ranks' contributions are held. SVG: time downwards, a line per rank, an arrow per message.

    Returns
    -------
    str

    Examples
    --------
    >>> print(draw("direct", 3))
    direct: 3 ranks, 3 blocks, 2 steps (# summed over all, . given away)
    0  >1>2 #..  >1>2 ###
    1  >0>2 .#.  >0>2 ###
    2  >0>1 ..#  >0>1 ###
    """
    key, params = parse(name, size, collective, **params)
    schedules = [schedule(key, rank, size, collective, root, **params) for rank in range(size)]
    drawings = {"text": draw_text, "svg": draw_svg}
    if format not in drawings:
        raise ValueError(f"unknown format {format!r}; have {', '.join(drawings)}")
    return drawings[format](key, schedules)


def draw_text(key: str, schedules: list[Schedule]) -> str:
    """A row per rank, a column per step."""
    size, blocks = len(schedules), schedules[0].blocks
    held = start(size, blocks)
    given: list[set[int]] = [set() for _ in schedules]
    columns: list[list[str]] = []

    def watch(t: int) -> None:
        totals = held.counts.sum(axis=2)
        column = []
        for rank, s in enumerate(schedules):
            for m in sorted(s.steps[t], key=lambda m: isinstance(m, Recv)):
                (given[rank].update if isinstance(m, Send) else given[rank].difference_update)(m.blocks)
            peers = "".join(f">{q}" for q in sorted({m.peer for m in s.steps[t] if isinstance(m, Send)}))
            marks = [
                "#" if n == size else "." if block in given[rank] else DIGITS[min(n, 35)]
                for block, n in enumerate(totals[rank])
            ]
            column.append(f"{peers} {''.join(marks)}")
        width = max(map(len, column))
        columns.append([cell.rjust(width) for cell in column])

    play(schedules, held, watch)
    lines = [f"{_title(key, schedules)} (# summed over all, . given away)"]
    label = len(str(size - 1))
    per_band = max(1, (WIDTH - label) // (2 + max((len(c[0]) for c in columns), default=0)))
    for first in range(0, len(columns), per_band):
        for rank in range(size):
            cells = "  ".join(column[rank] for column in columns[first : first + per_band])
            lines.append(f"{rank:>{label}}  {cells}")
    return "\n".join(lines)


def draw_svg(key: str, schedules: list[Schedule]) -> str:
    """Time downwards, a line per rank, an arrow per message: wider for more of the buffer."""
    size, (blocks, steps) = len(schedules), schedules[0]
    arrows = [_arrows(schedules, t) for t in range(len(steps))]
    column, ys = max(50, 124 - 6 * size), [72]
    for messages in arrows:  # more room where messages are many or go far: flat arrows are hard to tell apart
        far = sum(abs(source - target) for source, target, _ in messages) // max(1, len(messages))
        ys.append(ys[-1] + 44 + 5 * far + 3 * len(messages) // size)
    width, bottom = max(420, 130 + column * (size - 1)), ys[-1]
    xs = [(width + 30 - column * (size - 1)) // 2 + column * rank for rank in range(size)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 54}" '
        f'viewBox="0 0 {width} {bottom + 54}" font-family="Helvetica, Arial, sans-serif" font-size="13" '
        'fill="#333">',
        f"<title>{_title(key, schedules)}</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        _text(width // 2, 26, _title(key, schedules), ' font-size="16" text-anchor="middle"'),
        _text(14, ys[0] - 15, "rank"),
        *(f'<path d="M14 {y}H{width - 14}" stroke="#ddd"/>' for y in ys),
        *(_text(14, (y + end) // 2 + 5, f"step {t}") for t, (y, end) in enumerate(pairwise(ys))),
        *(f'<path d="M{x} {ys[0] - 8}V{bottom + 8}" stroke="#999" stroke-width="1.5"/>' for x in xs),
        *(_text(x, ys[0] - 15, str(rank), ' text-anchor="middle"') for rank, x in enumerate(xs)),
    ]
    for t, messages in enumerate(arrows):
        for (source, target, add), held in messages.items():
            names = ", ".join(f"{r[0]}..{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in ranges(held))
            words = f"step {t}: rank {source} sends block{'s' * (len(held) > 1)} {names} to rank {target}"
            ends = xs[source], ys[t] + 6, xs[target], ys[t + 1] - 5
            parts.append(_arrow(*ends, len(held) / blocks, add, words))
    shares = sorted({Fraction(len(held), blocks) for messages in arrows for held in messages.values()})
    x, y = width // 2 - 190, bottom + 34
    for add, word in ((True, "added"), (False, "copied")):
        parts += [_arrow(x, y, x + 40, y, 0.2, add, word), _text(x + 47, y + 5, word)]
        x += 108
    for part in shares[:1] + shares[1:][-1:]:
        named = ("all" if part == 1 else str(part)) + " of the buffer" * (part == shares[-1])
        parts += [
            f'<path d="M{x} {y}h26" stroke="#777" stroke-width="{_stroke(float(part)):.1f}"/>',
            _text(x + 32, y + 5, named),
        ]
        x += 70
    return "\n".join([*parts, "</svg>\n"])


def _text(x: int, y: int, words: str, style: str = "") -> str:
    return f'<text x="{x}" y="{y}"{style}>{words}</text>'


def _stroke(part: float) -> float:
    return 6 * sqrt(part)


def _arrows(schedules: list[Schedule], t: int) -> dict[tuple[int, int, bool], list[int]]:
    """The blocks of step t by sender, receiver and whether they are added; messages of a pair draw as one."""
    found: dict[tuple[int, int, bool], list[int]] = {}
    for rank, s in enumerate(schedules):
        for m in s.steps[t]:
            if isinstance(m, Recv):
                found.setdefault((m.peer, rank, m.add), []).extend(m.blocks)
    return {message: sorted(held) for message, held in found.items()}


def _arrow(x: int, y: int, to_x: int, to_y: int, part: float, add: bool, words: str) -> str:
    """Drawn along the x axis, then turned; Okabe-Ito colours, and dashes for where colours do not print."""
    stroke, length = _stroke(part), hypot(to_x - x, to_y - y)
    head, colour = 6 + 1.7 * stroke, "#0072B2" if add else "#D55E00"
    dash = "" if add else ' stroke-dasharray="7 3"'
    rim = 1.6 * stroke  # white, so that arrows that cross stay apart
    shaft = f'<path d="M0 0H{length - head + 1:.1f}" stroke='
    return (
        f'<g transform="translate({x} {y}) rotate({degrees(atan2(to_y - y, to_x - x)):.2f})" fill="{colour}">'
        f'<title>{words}</title>{shaft}"#fff" stroke-width="{rim:.1f}"/>'
        f'{shaft}"{colour}" stroke-width="{stroke:.1f}"{dash}/>'
        f'<path d="M{length:.1f} 0l{-head:.1f} {-head / 2.6:.1f}v{head / 1.3:.1f}z"/></g>'
    )


def _title(key: str, schedules: list[Schedule]) -> str:
    blocks, steps = schedules[0]
    return f"{key}: {_n(len(schedules), 'rank')}, {_n(blocks, 'block')}, {_n(len(steps), 'step')}"


def _n(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"
