"""Builds TensorRT plans ahead of time: PyTorch programs through torch_tensorrt's converters.

load          the TensorRT packages, also on a machine without a GPU
aten          a partition in edge dialect back to ATen, as the converters want it
kv_update     the operator that appends to a KV cache, as a layer that works in place or as a select
precision     float32 programs in half precision
profiles      the ranges of an entry's extents; which entries are one network with different ranges
network       network definition, builder configuration, plan
"""
