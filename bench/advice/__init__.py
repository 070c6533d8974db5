"""What `bench advise` knows of training: GPUs, transformers, memory, the time of a step, and how to rank splits."""
