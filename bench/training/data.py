"""What is trained on, from this machine: scikit-learn's digits, and the text of Python's documentation."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["CONTEXT", "TASKS", "Task", "digits", "text"]

#: Characters of a sample of text.
CONTEXT = 32
#: Samples that are kept for testing.
TESTED = {"digits": 600, "text": 300}


@dataclass(frozen=True)
class Task:
    """Samples to train on and to test with.

    Attributes
    ----------
    inputs, targets, test_inputs, test_targets : Tensor
        Samples first; targets are int64 classes, one per sample or one per character of it.
    classes : int
    """

    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    classes: int

    def batches(self, steps: int, size: int, seed: int) -> np.ndarray:
        """Numbers of the samples of every step, shape (steps, size): each sample once, then each once more, ..."""
        rng = np.random.default_rng(seed)
        epochs = -(-steps * size // len(self.inputs))
        order = np.concatenate([rng.permutation(len(self.inputs)) for _ in range(epochs)])
        return order[: steps * size].reshape(steps, size)


def digits() -> Task:
    """8 x 8 pixels of handwritten digits, as rows of 64 numbers up to 1."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return _cut(torch.from_numpy(images).float() / 16, torch.from_numpy(labels), TESTED["digits"], 10)


def text() -> Task:
    """Python's own help on its language, in pieces, each character to be told from those before it."""
    from pydoc_data.topics import topics

    characters = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
    pieces = len(characters) // (CONTEXT + 1)
    codes = np.frombuffer(characters, np.uint8)[: pieces * (CONTEXT + 1)].reshape(pieces, CONTEXT + 1)
    whole = torch.from_numpy(codes.astype(np.int64))
    return _cut(whole[:, :-1], whole[:, 1:], TESTED["text"], 128)


def _cut(inputs: Tensor, targets: Tensor, tested: int, classes: int) -> Task:
    """Shuffled first: writers, and topics, come one after the other."""
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(inputs)))
    train, test = order[tested:], order[:tested]
    return Task(inputs[train], targets[train], inputs[test], targets[test], classes)


#: What each model learns.
TASKS = {"mlp": digits, "cnn": digits, "gpt": text}
