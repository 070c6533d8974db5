"""Kernels of codecs for CUDA devices: C++ in the files beside, with the same bits as the host's.

`lookup` finds what a codec has, `methods` what a method has.
"""
