"""Runs tests/gates/gate over models made here: a dense one with a big tied head, a plain dense one, a mixture of experts; single, split,
and as safetensors shards. Every line of the gate program is a test of its own in the count."""
import os, subprocess, sys
import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GATE = os.environ.get('LEAT_GATE', os.path.join(os.path.dirname(os.environ.get('LEAT', os.path.join(ROOT, 'build', 'leat'))), 'tests', 'gates', 'gate'))


def make(tmp, preset, *args):
    r = subprocess.run([sys.executable, os.path.join(ROOT, 'tools', 'make-model'), preset, *args], stdout=subprocess.PIPE, check=True, text=True)
    return r.stdout.split('\n')[0]


def run_gate(*models):
    r = subprocess.run([GATE, *models], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1500)
    print(r.stdout)
    lines = r.stdout.splitlines()
    bad = [l for l in lines if l.startswith('FAIL')]
    assert r.returncode == 0 and not bad, '\n'.join(bad or lines[-3:])
    assert lines[-1].endswith(' passed, 0 failed') and int(lines[-1].split()[0]) >= 40


@pytest.mark.parametrize('preset', ['small-llama', 'small-gemma3', 'small-qwen3moe'])
def test_identity(preset, tmp_path):
    one = make(tmp_path, preset, str(tmp_path / 'one.gguf'), '--format', 'Q4_K_M')
    split = make(tmp_path, preset, str(tmp_path / 'split.gguf'), '--format', 'Q4_K_M', '--split', '4', '--split-meta-first')
    run_gate(one, split)


def test_identity_of_safetensors(tmp_path):
    one = make(tmp_path, 'small-llama', str(tmp_path / 'one'), '--format', 'BF16', '--safetensors', '--set', 'V=1024')
    many = make(tmp_path, 'small-llama', str(tmp_path / 'many'), '--format', 'BF16', '--safetensors', '--split', '3', '--set', 'V=1024')
    run_gate(one, many)
