"""What the tests of training share: data, a small network, and one loop for all of them."""

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from witness import RANK, SIZE

TRAINED, BATCH, STEPS = 897, 64, 100
shuffled = np.random.default_rng(0).permutation(1797)  # writers come one after the other
images, labels = (torch.from_numpy(array[shuffled]) for array in load_digits(return_X_y=True))
images = images.float() / 16


class Net(torch.nn.Module):
    """Two hidden layers, and some parameters that are only used when asked for."""

    def __init__(self, width=64, spare=False):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU()
        )
        self.last = torch.nn.Linear(width, 10)
        self.spare = torch.nn.Linear(width, 10) if spare else None

    def forward(self, x, spare=False):
        return (self.spare if spare else self.last)(self.layers(x))


def batches(steps, seed=0):
    """Which images this rank takes in each step: all ranks cut up the same ones."""
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(TRAINED) for _ in range(1 + steps * BATCH // TRAINED)])
    return [order[i * BATCH : (i + 1) * BATCH][RANK::SIZE] for i in range(steps)]


def loss_of(model, chosen, **wishes):
    return F.cross_entropy(model(images[chosen], **wishes), labels[chosen])


def train(model, optimizer, steps, seed=0):
    """The loop of the tutorial; the loss of every step."""
    losses = []
    for chosen in batches(steps, seed):
        optimizer.zero_grad()
        loss = loss_of(model, chosen)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr)


def accuracy(model):
    """In percent, on images that were not trained with."""
    with torch.no_grad():
        return 100 * (model(images[TRAINED:]).argmax(1) == labels[TRAINED:]).double().mean().item()


def bits(model):
    """All parameters, as one array."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()


def gradients(model):
    return [np.zeros(0) if p.grad is None else p.grad.to(torch.float64, copy=True).numpy() for p in model.parameters()]
