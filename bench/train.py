"""Training itself: one model, trained in several ways in turns, ours beside PyTorch's own."""

from dataclasses import dataclass, field
from importlib.util import find_spec

from mpi4py import MPI

import compress
from allreduce.algorithms import parse

__all__ = ["Train", "mesh_of"]

#: By model: width, steps, learning rate at first, target.
DEFAULTS = {"mlp": (64, 120, 0.02, 94.0), "cnn": (32, 120, 0.02, 94.0), "gpt": (64, 200, 0.2, 2.5)}
Sizes = tuple[int, int, int]


def mesh_of(parallel: str, size: int) -> Sizes:
    """Data, tensor and pipeline: of hybrid each doubled in turn while ranks are left, the rest is data.

    >>> [mesh_of("hybrid", size) for size in (1, 2, 4, 6, 8, 16)]
    [(1, 1, 1), (2, 1, 1), (2, 2, 1), (6, 1, 1), (2, 2, 2), (4, 2, 2)]
    """
    tensor = 2 if size % 4 == 0 else 1
    pipeline = 2 if size % 8 == 0 else 1
    hybrid = size // tensor // pipeline, tensor, pipeline
    return {"data": (size, 1, 1), "tensor": (1, size, 1), "pipeline": (1, 1, size), "hybrid": hybrid}[parallel]


@dataclass
class Train:
    """The arguments of the command line; `bucket` in bytes, `target` in percent or, of gpt, a loss.

    Zero is what the model has by default.
    """

    parallel: str = "data"
    model: str = "mlp"
    mesh: Sizes = (0, 0, 0)
    width: int = 0
    depth: int = 6
    codec: list[str] = field(default_factory=list)
    algorithm: str = "auto"
    overlap: bool = True
    baselines: bool = True
    batch: int = 32
    microbatches: int = 4
    bucket: int = 4 << 20
    steps: int = 0
    every: int = 10
    probe: int = 20
    lr: float = 0.0
    target: float = 0.0
    seed: int = 0
    json: str | None = None

    def __post_init__(self) -> None:
        width, steps, lr, target = DEFAULTS[self.model]
        self.width, self.steps = self.width or width, self.steps or steps
        self.lr, self.target = self.lr or lr, self.target or target
        if any(self.mesh) and self.parallel != "hybrid":
            raise ValueError(f"--mesh is for --parallel hybrid, not for {self.parallel}")
        self.mesh = self.mesh if any(self.mesh) else mesh_of(self.parallel, MPI.COMM_WORLD.size)

    @property
    def by_loss(self) -> bool:
        """Whether the target is a loss."""
        return self.model == "gpt"

    @property
    def goal(self) -> float:
        """The loss, or the accuracy from 0 to 1."""
        return self.target if self.by_loss else self.target / 100

    def check(self) -> None:
        """Refuse, before anything is sent, what cannot be trained."""
        if not find_spec("torch"):
            raise ModuleNotFoundError("bench train needs PyTorch: pip install torch")
        if self.model != "gpt" and not find_spec("sklearn"):
            raise ModuleNotFoundError("the digits are scikit-learn's: pip install scikit-learn; or take --model gpt")
        self._check_mesh()
        if self.codec and self.mesh[0] < MPI.COMM_WORLD.size and self.mesh[0] == 1:
            raise ValueError(f"--codec is for the gradients of replicas, of which --parallel {self.parallel} has one")
        if self.microbatches > self.batch:
            raise ValueError(f"cannot cut --batch {self.batch} into --microbatches {self.microbatches}")
        if self.steps < 3:
            raise ValueError(f"--steps {self.steps}: expected 3 or more, for the first two count in no time")
        for text in self.codec:
            compress.get(text)
        if self.algorithm != "auto":
            parse(self.algorithm, MPI.COMM_WORLD.size)

    def _check_mesh(self) -> None:
        (data, tensor, pipeline), size = self.mesh, MPI.COMM_WORLD.size
        if data * tensor * pipeline != size:
            raise ValueError(f"--mesh {data}x{tensor}x{pipeline} is not {size} ranks")
        if pipeline > self.depth + 2:
            raise ValueError(f"--depth {self.depth} makes {self.depth + 2} layers, too few for {pipeline} stages")
        if self.model == "gpt" and (4 % tensor or self.width % 4):
            raise ValueError(f"a gpt has 4 heads, by which --width {self.width} and {tensor} tensor ranks must go")

    def run(self) -> int:
        """Train in all ways, and tell of each; returns 1 if any went wrong, else 0. Collective."""
        self.check()
        from .training.contest import contest

        return contest(self)
