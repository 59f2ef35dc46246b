#!/usr/bin/env python3
"""first_token.py MODEL LEAT [LEAT ...] [--runs N] [--prompt TEXT] [--cold]: time to the first token.

From the start of `leat run MODEL -p TEXT -n 1` to the first byte it prints, load included. The programs take
turns; before every run the model is read once, so that it lies in the page cache (--cold: thrown out of it
instead). The first turn is not counted: memory that a virtual machine has never touched comes slowly. The
prompt that is used unless another is given has 16 tokens with Gemma 3's tokenizer, BOS included. Judges
nothing, prints medians."""
import argparse
import os
import statistics
import subprocess
import time

PROMPT = 'The river that fed the old mill ran low in summer, and so the'


def warm(path):
    with open(path, 'rb', buffering=0) as f:
        while f.read(1 << 22):
            pass


def chill(path):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def first_token(leat, model, prompt):
    start = time.perf_counter()
    p = subprocess.Popen([leat, 'run', model, '-p', prompt, '-n', '1', '--temp', '0'], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL)
    if not os.read(p.stdout.fileno(), 1):
        raise SystemExit(f'{leat}: printed nothing')
    seconds = time.perf_counter() - start
    p.wait()
    return seconds


a = argparse.ArgumentParser()
a.add_argument('model')
a.add_argument('leat', nargs='+')
a.add_argument('--runs', type=int, default=11)
a.add_argument('--prompt', default=PROMPT)
a.add_argument('--cold', action='store_true')
a = a.parse_args()
times = {leat: [] for leat in a.leat}
for turn in range(a.runs + 1):
    for leat in a.leat:
        (chill if a.cold else warm)(a.model)
        seconds = first_token(leat, a.model, a.prompt)
        if turn:
            times[leat].append(seconds)
for leat, t in times.items():
    low, _, high = statistics.quantiles(t, n=4)
    print(f'{leat}: median {statistics.median(t):.3f} s of {len(t)} runs, quartiles {low:.3f} and {high:.3f}, '
          f'{min(t):.3f} to {max(t):.3f}')
