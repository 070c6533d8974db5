"""How to split a training run: what fits, what each axis sends, how long a step takes; needs no MPI and no GPU."""

import json
from dataclasses import dataclass
from pathlib import Path

from .advice.gpus import GPUS
from .advice.links import Cluster
from .advice.model import Model
from .advice.ranking import ranked
from .advice.report import Run, record, table

__all__ = ["Advise"]

#: Tokens a parameter that a model learns from at best. See: Hoffmann et al., arXiv 2203.15556.
ENOUGH = 20


@dataclass(frozen=True)
class Advise:
    """The arguments of the command line; bandwidths in bytes/s in each direction, data in bytes of text."""

    params: int
    layers: int
    hidden: int
    seq: int
    batch: int
    nodes: int
    gpus_per_node: int
    gpu: str
    intra: float
    inter: float
    data: float | None = None
    bytes_per_token: float = 4.0
    vocab: int = 51200
    heads: int | None = None
    attention: str | None = None
    software: str | None = None
    top: int = 8
    json: str | None = None

    def run(self) -> Run:
        """Checked. Without `heads`, about 128 wide, and so many that the GPUs of a node can share them."""
        heads = self.heads or -(-self.hidden // 128 // self.gpus_per_node) * self.gpus_per_node
        if self.heads and self.hidden % self.heads:
            raise ValueError(f"hidden size {self.hidden} does not divide into {self.heads} heads")
        if self.gpu not in GPUS:
            raise ValueError(f"unknown GPU {self.gpu!r}; have {', '.join(GPUS)}")
        fused = self.attention == "fused" if self.attention else GPUS[self.gpu].fused
        model = Model(self.params, self.layers, self.hidden, heads, self.vocab, self.seq, self.batch, fused).check()
        cluster = Cluster(self.nodes, self.gpus_per_node, GPUS[self.gpu], self.intra, self.inter)
        return Run(model, cluster, self.data / self.bytes_per_token if self.data else ENOUGH * self.params)

    def show(self) -> None:
        """Print the choices, or write them as JSON."""
        run = self.run()
        choices = ranked(run.model, run.cluster, self.software)
        quickest = min(c.seconds for c in choices)
        text = json.dumps({"choices": [record(run, c, quickest) for c in choices]}, indent=1)
        if self.json not in (None, "-"):
            Path(str(self.json)).write_text(text + "\n")
        print(text if self.json == "-" else table(run, choices, self.top))
