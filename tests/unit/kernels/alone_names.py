#!/usr/bin/env python3
"""Brings alone_names.h up to date: compiles alone.c without making code and adds what the compiler calls defined twice, until there
is no more of it. Run it where a test or a build of alone.c reports a redefinition.

    tests/unit/kernels/alone_names.py [CC ...]        (gcc and aarch64-linux-gnu-gcc)"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = os.path.join(HERE, 'alone_names.h')
TWICE = re.compile('(?:redefinition of|conflicting types for|redeclaration of) [^‘\']*[‘\'](?:struct |enum )?(\\w+)')


def names_read():
    with open(NAMES) as f:
        text = f.read()
    head = text[:text.index('\n\n') + 2]
    return head, set(re.findall(r'#define (\w+) +ALONE_NAME', text))


def names_write(head, names):
    width = max(len(n) for n in names) + 1
    with open(NAMES, 'w') as f:
        f.write(head + ''.join('#define %-*sALONE_NAME(%s)\n' % (width, n, n) for n in sorted(names)))


for cc in sys.argv[1:] or ['gcc', 'aarch64-linux-gnu-gcc']:
    while True:
        r = subprocess.run([cc, '-O2', '-std=gnu17', '-fsyntax-only', os.path.join(HERE, 'alone.c')],
                           stderr=subprocess.PIPE, text=True, env={**os.environ, 'LC_ALL': 'C.UTF-8'})
        head, names = names_read()
        new = set(TWICE.findall(r.stderr)) - names
        if not new:
            print('%s: %s' % (cc, 'well' if r.returncode == 0 else r.stderr))
            break
        print('%s: %s' % (cc, ' '.join(sorted(new))))
        names_write(head, names | new)
