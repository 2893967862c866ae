#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# make_dequant.py > dequant.txt: blocks of every weight type and what they stand for, by the Python package gguf (0.19.0).
import gguf
import numpy as np
from gguf.quants import dequantize

HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}  # offsets of the half floats in a block
SPECIAL = np.array([0, -0.0, 6e-8, 65504], dtype=np.float16)
rng = np.random.default_rng(20)


def block(size, halves, special):
    b = rng.integers(0, 256, size, dtype=np.uint8)
    for at in halves:
        x = SPECIAL[rng.integers(4)] if special and rng.random() < 0.5 else np.float16(rng.uniform(-0.1, 0.1))
        b[at:at + 2] = np.frombuffer(x.tobytes(), np.uint8)
    return b


def show(name, block, floats):
    print(name.lower(), block.tobytes().hex(), floats.astype("<f4").tobytes().hex())


print("# type, block(s), the floats they stand for; both as hexadecimal bytes, little-endian.  Made by make_dequant.py with gguf 0.19.0:")
print("# random bytes, the half floats in a block within -0.1 .. 0.1, or 0, -0, the smallest subnormal, 65504.")
print("# f16 and bf16: every 997th bit pattern that is no NaN.")
for name, halves in HALVES.items():
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    for i in range(4 if elements == 32 else 2):
        b = block(size, halves, i > 0)
        show(name, b, dequantize(b[None], gguf.GGMLQuantizationType[name])[0])
h = np.arange(0, 65536, 997, dtype=np.uint16)
for name, floats in ("f16", h.view(np.float16).astype(np.float32)), ("bf16", (h.astype(np.uint32) << 16).view(np.float32)):
    show(name, h[~np.isnan(floats)], floats[~np.isnan(floats)])
