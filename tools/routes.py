"""Recorded routings: reading them, and embeddings with which a random mixture of experts routes as recorded. For tools/make-model and
tools/bench-stream. A trace is the published CSV form (xz or plain): turn,phase,step,layer,slot,expert,... after lines that begin with #.
"""
import lzma
try:
    import numpy as np
except ImportError:  # read_misses needs none
    np = None


def read_trace(path):
    """(experts[token, layer, slot], prompt tokens); -1 where a layer has no record of a token."""
    rows = {}
    order = {}
    prompt = set()
    with (lzma.open(path, 'rt') if path.endswith('.xz') else open(path)) as f:
        for line in f:
            if line[0] == '#' or line[0] == 't': continue
            turn, phase, step, layer, slot, expert = (int(x) for x in line.split(',')[:6])
            t = order.setdefault((turn, step), len(order))
            if phase == 0: prompt.add(t)
            rows[t, layer, slot] = expert
    if not rows: raise ValueError('%s holds no rows of a routing trace' % path)
    layers, slots = max(k[1] for k in rows) + 1, max(k[2] for k in rows) + 1
    # an engine that evaluates a prompt layer by layer writes all its tokens of layer 0 first: put them in order of their steps
    rank = {t: i for i, (_, t) in enumerate(sorted((key, t) for key, t in order.items()))}
    out = np.full((len(order), layers, slots), -1, np.int32)
    for (t, l, s), x in rows.items(): out[rank[t], l, s] = x
    return out, len(prompt)


def replay_plan(trace, prompt, layers, experts, seed):
    """Which experts each new token id chooses, chosen[id, layer, slot], and the sequences of them.

    A model of fewer layers takes every stride-th layer of the trace; the layers between make further segments, each a change of topic (other
    layers, other experts). Behind them come hostile ids: every 20 of them choose from a block of experts that the 20 before do not use.
    A token that one layer has no record of chooses there as the next recorded one."""
    n, have, used = trace.shape
    if trace.max() >= experts or have < layers:
        raise ValueError('the trace has %d layers of %d experts, the model %d of %d' % (have, trace.max() + 1, layers, experts))
    stride = have // layers
    filled = trace.copy()
    for l in range(have):
        known = np.flatnonzero(filled[:, l, 0] >= 0)
        for t in np.flatnonzero(filled[:, l, 0] < 0):
            filled[t, l] = filled[known[np.searchsorted(known, t) % len(known)], l]
    parts = [filled[:, s:s + stride * layers:stride] for s in range(stride)]
    names = {'prompt': (0, prompt)}
    names['recorded'] = (prompt, n * stride)
    blocks = min(4, experts // used)
    rng = np.random.Generator(np.random.PCG64(seed))
    if blocks > 1:
        size = experts // blocks
        hostile = np.array([[rng.permutation(size)[:used] + (t // 20) % blocks * size for _ in range(layers)] for t in range(160)], np.int32)
        parts.append(hostile)
        names['hostile'] = (n * stride, n * stride + len(hostile))
    return np.concatenate(parts), names


def embeddings_for(chosen, routers, rms, steps=100):
    """Rows with which softmax(router . row) picks the chosen experts of every layer, and the share of choices that come out.

    routers[layer, expert, :]. Starts at the sum of the chosen experts' router rows; then steps down a squared hinge loss: the chosen ones
    above a margin, all others below its negative. Attention and experts add so little to the residual that this row is what every router
    sees, but for a scale, which changes no order."""
    layers, experts, width = routers.shape
    r = routers.reshape(layers * experts, width).astype(np.float32)
    r = r / np.linalg.norm(r, axis=1, keepdims=True)
    n = len(chosen)
    sign = np.full((n, layers, experts), -1, np.float32)
    np.put_along_axis(sign, chosen, 1, axis=2)
    sign = sign.reshape(n, -1)
    # chosen ones are rarer than the others by experts / used: weight them so that both pull alike
    weight = np.where(sign > 0, experts / chosen.shape[2] / 4, 1).astype(np.float32)
    x = (sign > 0).astype(np.float32) @ r
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    margin = np.float32(1.0 / (layers * experts) ** 0.5)
    rate = np.float32(0.5 * width / (layers * experts))
    velocity = np.zeros_like(x)
    for _ in range(steps):
        right = sign * (x @ r.T)
        if right.min() > margin / 3: break
        gap = np.maximum(0, margin - right) * sign * weight
        velocity = np.float32(0.8) * velocity + rate * np.float32(0.25) * (gap @ r)
        x += velocity
    x *= np.float32(rms * width ** 0.5) / np.linalg.norm(x, axis=1, keepdims=True)
    return x, agreement(x, routers, chosen)


def choices(rows, routers, used):
    """Which experts the routers choose for each row: [row, layer, slot], in no order."""
    return np.stack([np.argpartition(-(rows @ r.T), used - 1, axis=1)[:, :used] for r in routers], axis=1)


def agreement(rows, routers, chosen):
    """The share of choices (token, layer, slot) that the routers make as wanted."""
    got = choices(rows, routers, chosen.shape[2])
    return float((chosen[..., :, None] == got[..., None, :]).any(-1).mean())


def read_misses(path):
    """Of a trace in our own form (docs/routes.md), token by token: how many experts each layer had to read."""
    with open(path, 'rb') as f: b = f.read()
    if b[:8] != b'LEATRTE\x01': raise ValueError('%s is no routing trace' % path)
    layers, experts, name = (int.from_bytes(b[i:i + 4], 'little') for i in (8, 12, 16))
    at, tokens, order = 20 + name + 8 * layers + 8, {}, []
    wide = 2 if experts > 256 else 1
    while at < len(b):
        size, rows = int.from_bytes(b[at:at + 4], 'little'), int.from_bytes(b[at + 4:at + 8], 'little')
        at += 16
        if size == 0: break
        last = [0, 0, 0]
        for _ in range(rows):
            flags = b[at]; at += 1
            for k in range(3):
                v = shift = 0
                while True:
                    byte = b[at]; at += 1
                    v |= (byte & 127) << shift; shift += 7
                    if byte < 128: break
                last[k] += v // 2 if v % 2 == 0 else -(v + 1) // 2
            n = b[at]; at += 1 + n * wide
            hits = sum(bin(x).count('1') for x in b[at:at + (n + 7) // 8]); at += (n + 7) // 8
            if flags & 2: at += 4 * n
            key = (last[0], last[1])
            if key not in tokens: tokens[key] = [0] * layers; order.append(key)
            tokens[key][last[2]] = n - hits
    return [tokens[k] for k in order]
