"""Fusion buffers: the gradients of many parameters as one tensor."""

import torch

__all__ = ["Bucket", "fuse"]


class Bucket:
    """A flat tensor, and a view into it for each of some parameters of one dtype on one device, by their names."""

    def __init__(self, parameters: dict[str, torch.Tensor]) -> None:
        self.parameters = parameters
        some = next(iter(parameters.values()))
        self.flat = torch.zeros(sum(p.numel() for p in parameters.values()), dtype=some.dtype, device=some.device)
        pieces = self.flat.split([p.numel() for p in parameters.values()])
        self.views = {name: piece.view(p.shape) for (name, p), piece in zip(parameters.items(), pieces)}

    def collect(self, name: str) -> None:
        """Take a gradient in, zero if there is none; it lies here from now on."""
        parameter, view = self.parameters[name], self.views[name]
        if parameter.grad is None:
            view.zero_()
        elif parameter.grad is not view:
            view.copy_(parameter.grad)
        parameter.grad = view


def fuse(parameters: dict[str, torch.Tensor], limit: int) -> list[Bucket]:
    """Buckets of so many bytes at most, or of one parameter, in the order in which backward passes need them.

    >>> weights = {name: torch.zeros(8) for name in "abcde"}
    >>> [list(bucket.parameters) for bucket in fuse(weights, 64)]
    [['e', 'd'], ['c', 'b'], ['a']]
    """
    groups: list[dict[str, torch.Tensor]] = []
    latest: dict[tuple[torch.dtype, torch.device], tuple[dict[str, torch.Tensor], int]] = {}
    for name, parameter in reversed(parameters.items()):
        group, nbytes = latest.get((parameter.dtype, parameter.device), ({}, limit))
        if nbytes + parameter.nbytes > limit:
            group, nbytes = {}, 0
            groups.append(group)
        group[name] = parameter
        latest[parameter.dtype, parameter.device] = group, nbytes + parameter.nbytes
    return [Bucket(group) for group in groups]
