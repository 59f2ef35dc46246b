#!/usr/bin/env python3
"""perplexity_peers.py LEAT MODEL.gguf TEXT [WINDOWS]: the perplexity of a text beside llama.cpp's.

The text's ids (Leat's tokenizer, which the tests compare with others) are cut into windows of 512, the
vocabulary's BOS in front of each; every window is evaluated alone by both, from the same ids. Run with a
Python that has llama-cpp-python and numpy. Needs the two to agree within 0.5 %."""
import json
import os
import subprocess
import sys

import llama_cpp as L
import numpy as np

leat, model, text = sys.argv[1:4]
windows = int(sys.argv[4]) if len(sys.argv) > 4 else 8
WIDTH, PART = 512, 64


def run(*args):
    return json.loads(subprocess.run([leat, *args, '--json'], stdout=subprocess.PIPE, check=True, text=True).stdout)


t = run('tokenize', model, '-f', text)
ids = t['tokens'] if 'tokens' in t else t['ids']
ids = [x['id'] if isinstance(x, dict) else x for x in ids]
bos, ids = ids[0], ids[1:]
mod = L.llama_model_load_from_file(model.encode(), L.llama_model_default_params())
cp = L.llama_context_default_params()
cp.n_ctx = cp.n_batch = cp.n_ubatch = WIDTH
cp.n_threads = cp.n_threads_batch = os.cpu_count()
ctx = L.llama_init_from_model(mod, cp)
nv = L.llama_vocab_n_tokens(L.llama_model_get_vocab(mod))
batch = L.llama_batch_init(PART, 0, 1)


def peer_nll(w):
    L.llama_memory_clear(L.llama_get_memory(ctx), True)
    nll = 0.0
    for start in range(0, len(w), PART):
        part = w[start:start + PART]
        batch.n_tokens = len(part)
        for i, x in enumerate(part):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = x, start + i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, 1
        if L.llama_decode(ctx, batch) != 0:
            sys.exit('llama.cpp failed')
        z = np.ctypeslib.as_array(L.llama_get_logits(ctx), shape=(len(part), nv)).astype(np.float64)
        top = z.max(axis=1)
        lse = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
        for i in range(len(part)):
            if start + i + 1 < len(w):
                nll += lse[i] - z[i, w[start + i + 1]]
    return nll


mine = theirs = 0.0
count = 0
for i in range(windows):
    w = ids[i * (WIDTH - 1):(i + 1) * (WIDTH - 1)]
    if len(w) < 2:
        break
    w = [bos] + w
    r = run('eval', model, '--tokens', ' '.join(map(str, w)))
    a, b = np.log(r['perplexity']) * (len(w) - 1), peer_nll(w)
    mine, theirs, count = mine + a, theirs + b, count + len(w) - 1
    print(f'window {i}: {np.exp(a / (len(w) - 1)):.4f} {np.exp(b / (len(w) - 1)):.4f}', file=sys.stderr)
a, b = np.exp(mine / count), np.exp(theirs / count)
print(f'{count} tokens: Leat {a:.4f}, llama.cpp {b:.4f}, difference {a / b - 1:+.3%}')
sys.stdout.flush()
os._exit(0 if abs(a / b - 1) < 0.005 else 1)
