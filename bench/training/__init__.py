"""Training runs of `bench train`: data and models, ways to train them on several ranks, and the race between ways.

On PyTorch only: `data`, `models`. With MPI: `replicas` (data parallel, ours and PyTorch's own), `splits` (tensor,
pipeline, hybrid), `race` (all ways in turns), `results` (what is told of each), `sockets` (bytes sent).
"""
