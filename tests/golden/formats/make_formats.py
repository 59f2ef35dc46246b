#!/usr/bin/env python3
"""Writes NAME.bin for every block format that runs: blocks of random and extreme content and the
values they stand for, from the dequantisers of the PyPI package `gguf` (run with it and numpy
installed; the files are committed, so that tests need neither).

NAME.bin: u32 blocks, u32 elements per block, u32 bytes per block (little endian), then the blocks,
then the float32 values. Q5_1, MXFP4, the K and the IQ4 formats are also checked here against formulas written
out one element at a time."""
import pathlib
import struct

import gguf
import gguf.quants
import numpy as np

HERE = pathlib.Path(__file__).parent
RNG = np.random.default_rng(20240607)
HALVES = {"Q4_0": [0], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "MXFP4": [],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}
# ordinary, zero, minus zero, smallest and largest subnormal, largest, negative
SCALES = [0x1E66, 0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xA1B3]


def half(raw):
    return float(np.frombuffer(bytes(raw), dtype="<f2")[0])


def six_bits(s, g):
    if g < 4:
        return s[g] & 63, s[g + 4] & 63
    return (s[g + 4] & 15) | (s[g - 4] >> 6) << 4, (s[g + 4] >> 4) | (s[g] >> 6) << 4


def by_hand(name, b, e):
    """Element e of block b in double precision."""
    if name == "Q5_1":
        q = (b[8 + e % 16] >> (4 if e >= 16 else 0) & 15) | (b[4 + e // 8] >> e % 8 & 1) << 4
        return half(b[0:2]) * q + half(b[2:4])
    if name == "MXFP4":
        t = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]
        q = b[1 + e % 16] >> (4 if e >= 16 else 0) & 15
        return 2.0 ** (min(b[0], 255) - 128) * t[q]
    if name in ("Q4_K", "Q5_K"):
        g, l = divmod(e, 32)
        s, m = six_bits(b[4:16], g)
        qs = b[16:] if name == "Q4_K" else b[48:]
        q = qs[32 * (g // 2) + l] >> (4 if g % 2 else 0) & 15
        if name == "Q5_K":
            q |= (b[16 + l] >> g & 1) << 4
        return half(b[0:2]) * s * q - half(b[2:4]) * m
    if name in ("IQ4_NL", "IQ4_XS"):
        t = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
        g, l = divmod(e, 32)
        q = t[b[(2 if name == "IQ4_NL" else 8) + 16 * g + l % 16] >> (4 if l >= 16 else 0) & 15]
        if name == "IQ4_NL":
            return half(b[0:2]) * q
        low = b[4 + g // 2] >> (4 if g % 2 else 0) & 15
        return half(b[0:2]) * ((low | ((b[2] | b[3] << 8) >> 2 * g & 3) << 4) - 32) * q
    if name == "Q6_K":
        n, r = divmod(e, 128)
        j, l = divmod(r, 32)
        low = b[64 * n + 32 * (j & 1) + l] >> (0 if j < 2 else 4) & 15
        q = (low | (b[128 + 32 * n + l] >> 2 * j & 3) << 4) - 32
        sc = b[192 + e // 16]
        return half(b[208:210]) * (sc - 256 if sc > 127 else sc) * q
    return None


def main():
    for name, halves in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        elems, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = []
        for scale in SCALES:
            for fill in (None, 0x00, 0xFF) if scale == SCALES[0] else (None,):
                b = bytearray(RNG.bytes(size) if fill is None else [fill] * size)
                for h in halves:
                    b[h:h + 2] = struct.pack("<H", scale ^ (0x8000 if h == 2 and fill is None else 0))
                blocks.append(bytes(b))
        if name == "MXFP4":
            for e8 in (0, 1, 2, 126, 127, 128, 252, 255):
                blocks.append(bytes([e8]) + RNG.bytes(16))
        raw = np.frombuffer(b"".join(blocks), dtype=np.uint8).reshape(len(blocks), size)
        with np.errstate(over="ignore"):
            values = gguf.quants.dequantize(raw, kind).astype("<f4").reshape(len(blocks), elems)
        for i, b in enumerate(blocks):
            for e in range(elems):
                hand = by_hand(name, b, e)
                if hand is None:
                    break
                got = float(values[i, e])
                if np.isinf(got):
                    assert abs(hand) >= 3.4e38, (name, i, e)
                    continue
                assert abs(hand - got) <= 4e-7 * (abs(hand) + abs(half(b[2:4])) * 63 if
                        name in ("Q4_K", "Q5_K", "Q5_1") else abs(hand)) + 1e-44, (name, i, e, hand, got)
        out = struct.pack("<III", len(blocks), elems, size) + raw.tobytes() + values.tobytes()
        (HERE / f"{name}.bin").write_bytes(out)
        print(name, len(blocks), len(out))


main()
