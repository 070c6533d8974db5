"""In which order to try what fits."""

from .choices import Choice, fitting, misfit
from .links import Cluster
from .model import Model

__all__ = ["CLOSE", "ranked"]

#: Part of a GPU's memory that the rule of thumb fills: room for what a model of memory does not know, and for the holes
#: that scores of attention leave when they are freed; where attention is one kernel there are none.
CAUTIOUS, FUSED = 2 / 3, 3 / 4
#: Times that differ by less are the same: the model is not more exact.
CLOSE = 0.06
#: Of the first of each order.
PLAIN = "of those as quick, the one with the fewest stages"
RULE = "by the rule of thumb: tensor parallel inside the node, stages as memory asks for them"


def ranked(model: Model, cluster: Cluster, software: str | None = None) -> list[Choice]:
    """Every choice that fits, the one to try first in front.

    There are two orders: of all choices, and of those by the rule of thumb of Narayanan et al. (arXiv 2104.04473):
    tensor parallel inside the node, pipeline stages once that fills it, as few as memory asks for, data parallel
    for the rest, optimiser whole. The first of each lead; the others follow, whichever order's next is quicker. Where
    `software` is not known, both orders are of the earlier, and the rule of thumb is asked for the later besides: runs
    on the same GPUs differ in it.

    Parameters
    ----------
    software : str, optional
        "earlier" than 2022, or "later". Choices are priced with the later unless only the earlier is there.

    Raises
    ------
    ValueError
        Nothing fits; naming what comes closest.
    """
    kinds = {"earlier": [False], "later": [True]}.get(software or "", [True] if model.fused else [False, True])
    priced = {c.kind: c for c in fitting(model, cluster, later=kinds[-1])}
    if not priced:
        raise ValueError(misfit(model, cluster))
    every = fitting(model, cluster, later=kinds[0])
    cautious = FUSED if model.fused else CAUTIOUS
    custom = [fitting(model, cluster, cautious, later, sharded=False) for later in kinds]
    custom = [[c for c in choices if customary(c, cluster)] for choices in custom]
    orders = [[priced[c.kind] for c in plainest(choices, cluster)] for choices in (every, *custom)]
    before = "" if kinds[0] == kinds[-1] else ", with software before 2022"
    notes = PLAIN + before, RULE + before, RULE
    leaders = {o[0].kind: o[0]._replace(note=note) for o, note in zip(orders, notes) if o}
    result = sorted(leaders.values(), key=lambda c: c.seconds)
    while orders := [o for o in (drop(order, result) for order in orders) if o]:
        result.append(min((o[0] for o in orders), key=lambda c: c.seconds))
    return result + drop(plainest(list(priced.values()), cluster), result)


def customary(choice: Choice, cluster: Cluster) -> bool:
    """Whether the rule of thumb would make it."""
    split = choice.split
    return split.tensor <= cluster.gpus and (split.tensor == cluster.gpus or split.pipeline == 1)


def plainest(choices: list[Choice], cluster: Cluster) -> list[Choice]:
    """By time; but of those as quick as any, first the one with the fewest stages, then the next depth.

    For a depth speaks its quickest, if there is one among those that leave memory free; splits whose tensor axis
    leaves the node or whose weights are strewn come last, for links between nodes are shared with everything else.
    """

    def plainness(choice: Choice) -> tuple[bool, int, bool]:
        split, room = choice.split, CAUTIOUS * cluster.gpu.memory
        return split.tensor > cluster.gpus or split.strewn, split.pipeline, choice.memory.total > room

    choices = sorted(choices, key=lambda c: c.seconds)
    close = [c for c in choices if c.seconds <= choices[0].seconds * (1 + CLOSE)]
    heads: dict[int, Choice] = {}
    for choice in sorted(close, key=plainness):
        heads.setdefault(choice.split.pipeline, choice)
    return [*heads.values(), *drop(choices, list(heads.values()))]


def drop(choices: list[Choice], those: list[Choice]) -> list[Choice]:
    kinds = {c.kind for c in those}
    return [c for c in choices if c.kind not in kinds]
