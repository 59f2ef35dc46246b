"""Logits against independent sources: Hugging Face transformers (committed, any machine) and the formulas of archcheck (shared data)."""
import json, os, subprocess, sys
import numpy as np
import pytest
from conftest import ROOT, data_path, leat, leat_json

GOLDEN = os.path.join(ROOT, 'tests', 'golden', 'transformers')
CASES, TOKENS = {}, []
exec(open(os.path.join(GOLDEN, 'cases.py')).read())
ARCHCHECK = ['llama', 'mixtral', 'qwen2', 'qwen3', 'qwen3moe', 'gemma3']


def logits(model, tokens, tmp_path, *args):
    out = str(tmp_path / 'logits.bin')
    leat('eval', model, '--tokens', ' '.join(map(str, tokens)), '--logits', out, '--kv-type', 'f32', *args, check=0)
    return np.fromfile(out, dtype='<f4').reshape(len(tokens), -1)


def error(got, want):
    assert got.shape == want.shape
    return np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)


@pytest.mark.parametrize('isa', ['auto', 'scalar'])
@pytest.mark.parametrize('case', [c for c in CASES if c != 'tiny-mistral-window'])
def test_gguf_gives_the_logits_of_transformers(case, isa, make_model, tmp_path):
    want = np.load(os.path.join(GOLDEN, case + '.npy')).astype(np.float64)
    assert error(logits(make_model(*CASES[case]), TOKENS, tmp_path, '--isa', isa), want) < 1e-5


@pytest.mark.parametrize('split', [1, 3])
@pytest.mark.parametrize('case', list(CASES))
def test_safetensors_gives_the_logits_of_transformers(case, split, make_model, tmp_path):
    want = np.load(os.path.join(GOLDEN, case + '.npy')).astype(np.float64)
    model = make_model(*CASES[case], '--split', str(split), safetensors=True)
    assert error(logits(model, TOKENS, tmp_path), want) < 1e-5


def test_the_window_matters(make_model, tmp_path):
    """The golden of the windowed mistral must not be met by the one without a window."""
    want = np.load(os.path.join(GOLDEN, 'tiny-mistral-window.npy')).astype(np.float64)
    assert error(logits(make_model('tiny-mistral'), TOKENS, tmp_path), want) > 1e-2


@pytest.mark.parametrize('name', ARCHCHECK)
def test_archcheck(name, tmp_path):
    script = data_path('archcheck', 'archcheck.py')
    subprocess.run([sys.executable, script, str(tmp_path), name], check=True, stdout=subprocess.DEVNULL)
    j = json.load(open(tmp_path / (name + '.json')))
    want = np.array(j['logits'])
    assert error(logits(str(tmp_path / (name + '.gguf')), j['tokens'], tmp_path), want) < 1e-5


@pytest.mark.parametrize('which', ['gguf', 'hf'])
def test_stories260k(which, tmp_path):
    cases = json.load(open(data_path('stories260K', 'expected.json')))['cases']
    check_expected(data_path('stories260K', 'stories260K-f32.gguf' if which == 'gguf' else 'hf'), cases, tmp_path)


@pytest.mark.parametrize('which', ['identical', 'varied'])
def test_stories260k_moe(which, tmp_path):
    model = data_path('stories260K-moe', 'stories260K-moe8x2-%s-f32.gguf' % which)
    if which == 'identical':  # equal experts: must be the dense model
        cases = json.load(open(data_path('stories260K', 'expected.json')))['cases']
    else:
        cases = json.load(open(data_path('stories260K-moe', 'expected.json')))['varied']['cases']
    check_expected(model, cases, tmp_path)


def check_expected(model, cases, tmp_path):
    assert len(cases) == 12
    for c in cases:
        ids, greedy = c['prompt_ids'], c['greedy_ids']
        got = logits(model, ids, tmp_path)[-1].astype(np.float64)
        top, want = zip(*c['first_logits_top20'])
        assert np.linalg.norm(got[list(top)] - want) / np.linalg.norm(want) < 1e-4
        assert sorted(np.argsort(-got)[:20]) == sorted(top)
        r = leat_json('run', model, '--tokens', ' '.join(map(str, ids)), '-n', len(greedy), '--temp', '0', '--ignore-eos', '--kv-type', 'f32')
        assert r['tokens'] == greedy
