"""Kernels of codecs for CUDA devices: C++ in the files beside, with the same bits as the host's.

`blocks` has those of codecs of blocks, `selection` those of codecs that send single values.
"""
