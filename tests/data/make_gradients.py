"""Makes early.npy and late.npy: the gradients of eight ranks in one step of the training of a small model.

A perceptron with one hidden layer learns scikit-learn's 1797 handwritten digits of 8 x 8 pixels (64-96-10, ReLU,
cross entropy, momentum). The ranks draw 32 samples each and step along their mean gradient. Row r is the gradient of
rank r, all four tensors one after the other: weights, biases, weights, biases. Needs scikit-learn.
"""

from pathlib import Path

import numpy as np

RANKS, SAMPLES, HIDDEN = 8, 32, 96
EARLY, LATE = 5, 300
SHAPES = [(64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,)]
EDGES = np.cumsum([0, *(int(np.prod(shape)) for shape in SHAPES)])


def tensors(flat: np.ndarray) -> list[np.ndarray]:
    """The parts of a vector of all parameters."""
    return [flat[a:b].reshape(shape) for a, b, shape in zip(EDGES, EDGES[1:], SHAPES)]


def gradient(parameters: np.ndarray, images: np.ndarray, digits: np.ndarray) -> tuple[np.ndarray, float]:
    """The mean gradient over samples, and their mean loss."""
    w1, b1, w2, b2 = tensors(parameters)
    hidden = np.maximum(images @ w1 + b1, 0)
    scores = hidden @ w2 + b2
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    here = np.arange(len(digits)), digits
    loss = float(-np.log(odds[here]).mean())
    odds[here] -= 1
    odds /= len(digits)
    back = (odds @ w2.T) * (hidden > 0)
    parts = images.T @ back, back.sum(axis=0), hidden.T @ odds, odds.sum(axis=0)
    return np.concatenate([part.ravel() for part in parts]), loss


def main() -> None:
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    rng = np.random.default_rng(0)
    parameters = np.concatenate([
        (rng.standard_normal(shape) * (2 / shape[0]) ** 0.5 * (len(shape) > 1)).ravel() for shape in SHAPES
    ]).astype(np.float32)  # fmt: skip
    momentum = np.zeros_like(parameters)
    for step in range(LATE + 1):
        chosen = rng.choice(len(digits), (RANKS, SAMPLES), replace=False)
        pairs = [gradient(parameters, images[own], digits[own]) for own in chosen]
        gradients = np.stack([g for g, _ in pairs]).astype(np.float32)
        if step in (EARLY, LATE):
            name = "early" if step == EARLY else "late"
            print(f"{name}: step {step}, loss {np.mean([loss for _, loss in pairs]):.4f}")
            np.save(Path(__file__).with_name(f"{name}.npy"), gradients)
        momentum = np.float32(0.9) * momentum + gradients.mean(axis=0)
        parameters -= np.float32(0.1) * momentum


if __name__ == "__main__":
    main()
