"""Benchmarks of all-reduce: correct in every row, interleaved with MPI's own, priced by the model."""
