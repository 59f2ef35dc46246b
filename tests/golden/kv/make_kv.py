#!/usr/bin/env python3
"""Writes Q4_0.bin: rows of 64 values and what the quantiser of the PyPI package `gguf` makes of
them (run with it and numpy installed; the file is committed, so that tests need neither).

u32 rows, u32 values per row, u32 bytes per row (little endian), the float32 values, the bytes."""
import pathlib
import struct

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import quantize

rng = np.random.default_rng(5)
x = np.concatenate([
    rng.normal(size=(16, 64)),
    rng.uniform(-5, 5, size=(16, 64)),
    rng.normal(size=(8, 64)) * 10.0 ** rng.integers(-6, 4, size=(8, 64)),
    np.round(rng.normal(size=(8, 64)) * 4) / 2,  # several values of largest magnitude
    np.zeros((1, 64)),
]).astype(np.float32)
q = quantize(x, GGMLQuantizationType.Q4_0)
head = struct.pack("<3I", x.shape[0], x.shape[1], q.shape[1])
(pathlib.Path(__file__).parent / "Q4_0.bin").write_bytes(head + x.tobytes() + q.tobytes())
