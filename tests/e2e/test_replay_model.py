"""A model of tools/make-model --routes chooses the experts that a trace recorded: what the program's own trace of a run says."""
import json, random, subprocess, sys, os
import pytest
from conftest import ROOT, leat

LAYERS, EXPERTS, USED, PROMPT, TOKENS = 8, 16, 4, 4, 12   # of the trace; the model has half of the layers


@pytest.fixture(scope='module')
def replayed(tmp_path_factory):
    """(the trace as {(token, layer): experts}, model, what stands beside the model)"""
    d = tmp_path_factory.mktemp('replay')
    rng = random.Random(5)
    trace = {(t, l): rng.sample(range(EXPERTS), USED) for t in range(TOKENS) for l in range(LAYERS)}
    with open(d / 'trace.csv', 'w') as f:
        f.write('# route_trace v1\nturn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n')
        for (t, l), row in trace.items():
            for slot, x in enumerate(row): f.write('0,%d,%d,%d,%d,%d,0.25,0,100\n' % (t >= PROMPT, t, l, slot, x))
    model = str(d / 'm.gguf')
    subprocess.run([sys.executable, os.path.join(ROOT, 'tools', 'make-model'), 'tiny-replay', model, '--routes', str(d / 'trace.csv')],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return trace, model, json.load(open(str(d / 'm.replay.json')))


def chosen_by(model, ids, path):
    """{(token, layer): experts} of a run that evaluates ids as its prompt. Of a prompt the last layer is computed for its last token alone."""
    # two tokens: the converter wants one that was decoded; what it chose is left out
    leat('run', model, '--tokens', ' '.join(map(str, ids)), '-n', '2', '--ignore-eos', '--temp', '0', '--trace-routes', path, check=0)
    out = {}
    for line in leat('replay', path, '--csv', check=0).stdout.splitlines():
        if not line or line[0] in '#t': continue
        _, _, step, layer, _, expert = map(int, line.split(',')[:6])
        if step < len(ids): out.setdefault((step, layer), set()).add(expert)
    assert len(out) == len(ids) * (LAYERS // 2 - 1) + 1
    return out


def test_the_run_chooses_what_the_trace_recorded(replayed, tmp_path):
    trace, model, beside = replayed
    ids = beside['ids']['prompt'] + beside['ids']['recorded']
    assert len(ids) == 2 * TOKENS and beside['agreement'] == 1
    got = chosen_by(model, ids, str(tmp_path / 'run.trace'))
    for t in range(len(ids)):   # the last layer: each id as the end of a prompt
        got[t, LAYERS // 2 - 1] = chosen_by(model, ids[max(0, t - 1):t + 1], str(tmp_path / 'one.trace'))[min(t, 1), LAYERS // 2 - 1]
    assert len(got) == len(ids) * LAYERS // 2
    for (step, layer), experts in got.items():   # even layers first; the odd ones are the second topic
        assert experts == set(trace[step % TOKENS, 2 * layer + step // TOKENS]), (step, layer)


def test_hostile_ids_leave_the_experts_of_the_twenty_before(replayed, tmp_path):
    _, model, beside = replayed
    got = chosen_by(model, beside['ids']['hostile'][:60], str(tmp_path / 'run.trace'))
    for layer in range(LAYERS // 2 - 1):
        used = [set().union(*(got[t, layer] for t in range(20 * i, 20 * i + 20))) for i in range(3)]
        assert all(len(u) >= USED for u in used)
        assert not used[0] & used[1] and not used[1] & used[2]


def test_other_ids_choose_what_the_file_beside_says(replayed, tmp_path):
    _, model, beside = replayed
    ids = beside['ids']['uniform'][:32]
    assert ids == [i for i in ids if i < beside['ids']['prompt'][0]]
    for (step, layer), experts in chosen_by(model, ids, str(tmp_path / 'run.trace')).items():
        assert experts == set(beside['chosen'][str(ids[step])][layer])


def test_a_trace_that_does_not_fit_is_refused(replayed, tmp_path):
    (tmp_path / 't.csv').write_text('0,0,0,0,0,16,1,0,1\n')
    r = subprocess.run([sys.executable, os.path.join(ROOT, 'tools', 'make-model'), 'tiny-replay', str(tmp_path / 'm.gguf'), '--routes', str(tmp_path / 't.csv')],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert r.returncode == 1 and r.stderr == 'make-model: the trace has 1 layers of 17 experts, the model 4 of 16\n', r.stderr
    assert not os.path.exists(str(tmp_path / 'm.gguf'))
