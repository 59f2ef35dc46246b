"""The program on processors that are not here, by qemu's user mode: it must start on one without AVX, choose what that one has,
and give the logits of this machine. Part of `make check-all`."""
import os
import shutil
import struct
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LEAT = os.environ.get('LEAT', os.path.join(ROOT, 'build', 'leat'))
TOKENS = '1 5 9 33 100 7 64 2 19 250 81 3'
PRESETS = ['tiny-llama', 'tiny-gemma3', 'tiny-qwen3moe']


@pytest.fixture(scope='module', params=PRESETS)
def model(request, tmp_path_factory):
    out = str(tmp_path_factory.mktemp('model') / 'model.gguf')
    subprocess.run([sys.executable, os.path.join(ROOT, 'tools', 'make-model'), request.param, out, '--format', 'Q8_0'],
                   check=True, stdout=subprocess.DEVNULL)
    return out


def logits(tmp_path, model, cpu, *args):
    out = str(tmp_path / 'logits.f32')
    emulator = ['qemu-x86_64', '-cpu', cpu] if cpu else []
    r = subprocess.run([*emulator, LEAT, 'eval', model, '--tokens', TOKENS, '--logits', out, '--threads', '2', *args],
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    assert r.returncode == 0, r.stdout
    with open(out, 'rb') as f:
        data = f.read()
    values = struct.unpack('<%df' % (len(data) // 4), data)
    assert len(values) >= len(TOKENS.split()) * 256
    return values


def error(got, want):
    assert len(got) == len(want)
    return (sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want)) ** 0.5


@pytest.mark.skipif(not shutil.which('qemu-x86_64'), reason='no qemu-x86_64')
@pytest.mark.parametrize('cpu, isa', [('Nehalem', 'scalar'), ('SandyBridge', 'scalar'), ('Haswell', 'avx2')])
def test_logits(cpu, isa, model, tmp_path):
    # 1e-6: the C library may take other exponentials on another processor; our own kernels may not.
    assert error(logits(tmp_path, model, cpu), logits(tmp_path, model, None, '--isa', isa)) < 1e-6
