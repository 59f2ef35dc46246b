#!/usr/bin/env python3
"""kv_error.py LEAT MODEL TEXT: what keeping keys and values in fewer bits costs.

Evaluates TEXT (a file) with each KV type. Against f32: the relative distance of all logits (norm
of the difference over norm of the logits, each row about its own mean, which softmax does not see),
the share of tokens with the same likeliest successor, and the perplexities."""
import json
import subprocess
import sys
import tempfile

import numpy as np

leat, model, text = sys.argv[1:4]
base = None
print(f"{'type':6} {'logits':>10} {'same top':>9} {'perplexity':>12} {'of f32':>9}")
for kv in ('f32', 'f16', 'q8_0', 'q4_0'):
    with tempfile.NamedTemporaryFile() as out:
        r = subprocess.run([leat, 'eval', model, '-f', text, '--kv-type', kv, '--logits', out.name, '--json'],
                           stdout=subprocess.PIPE, check=True)
        r = json.loads(r.stdout)
        x = np.fromfile(out.name, '<f4').reshape(r['n_tokens'], -1)
    x -= x.mean(axis=1, keepdims=True)
    if base is None:
        base, ppl = x, r['perplexity']
    far = np.sqrt(np.square(x - base).sum(dtype=np.float64) / np.square(base).sum(dtype=np.float64))
    same = (x.argmax(axis=1) == base.argmax(axis=1)).mean()
    print(f"{kv:6} {far:10.2e} {same:9.4f} {r['perplexity']:12.4f} {r['perplexity'] / ppl - 1:+9.3%}")
