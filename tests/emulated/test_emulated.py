"""The program on processors that are not here, by qemu's user mode: it must start on one without AVX, choose what that one has,
and give the logits of this machine. Part of `make check-all`."""
import json
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


DEFAULT_MODEL = os.path.join(os.environ.get('XDG_CACHE_HOME', os.path.expanduser('~/.cache')), 'leat', 'models', 'gemma-3-270m-Q4_K_M.gguf')


@pytest.mark.skipif(not shutil.which('qemu-x86_64'), reason='no qemu-x86_64')
def test_old_processor_runs_the_default_model():
    if not os.path.exists(DEFAULT_MODEL):
        pytest.skip('the default model is not here (tools/get-default-model)')
    args = [LEAT, 'run', DEFAULT_MODEL, '-p', 'The river', '-n', '2', '--temp', '0', '--json']
    out = [subprocess.run([*emulator, *args, *isa], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=1200).stdout
           for emulator, isa in ((['qemu-x86_64', '-cpu', 'Nehalem'], []), ([], ['--isa', 'scalar']))]
    a, b = (json.loads(o)['tokens'] for o in out)
    assert len(a) == 2 and a == b


CROSS = {'x86_64': ('gcc', 'qemu-x86_64'), 'aarch64': ('aarch64-linux-gnu-gcc', 'qemu-aarch64')}


@pytest.fixture(scope='module')
def kernel_tests(tmp_path_factory):
    """The kernel tests of an architecture: one file, a static program that needs no library."""
    made = {}

    def make(arch):
        compiler, emulator = CROSS[arch]
        if not shutil.which(compiler) or not shutil.which(emulator):
            pytest.skip('no %s or %s' % (compiler, emulator))
        if arch not in made:
            program = str(tmp_path_factory.mktemp(arch) / 'kernels')
            subprocess.run(['sh', 'tests/unit/kernels/alone.sh', compiler, program], cwd=ROOT, check=True)
            made[arch] = program
        return made[arch], emulator
    return make


@pytest.mark.parametrize('arch, cpu, tiers', [
    ('x86_64', 'Nehalem', 'scalar'), ('x86_64', 'Haswell', 'scalar avx2'), ('aarch64', 'cortex-a72', 'scalar'),
    ('aarch64', 'neoverse-n1', 'scalar neon'), ('aarch64', 'max', 'scalar neon i8mm')])
def test_kernels(arch, cpu, tiers, kernel_tests):
    program, emulator = kernel_tests(arch)
    r = subprocess.run([emulator, '-cpu', cpu, program], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=900)
    assert r.returncode == 0, r.stdout[-500:]
    lines = r.stdout.splitlines()
    assert lines[0] == 'tiers: ' + tiers
    assert 'ok test_golden' in lines and 'ok test_tiers_integer' in lines and 'ok test_law' in lines
