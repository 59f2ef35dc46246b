"""leat bench: what it reports and refuses. No speed is asserted: only what does not depend on the machine."""
import json

import pytest

from conftest import leat, leat_json

SHORT = ['--prompt-tokens', '8', '--decode-tokens', '4', '-r', '2', '-t', '2']


@pytest.fixture(autouse=True)
def no_config(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'config'))


def refused(*args):
    plain, r = leat('bench', *args), leat('bench', *args, '--json')
    assert plain.returncode == r.returncode and plain.stdout == r.stdout == ''
    assert plain.stderr.startswith('leat: ') and plain.stderr.count('\n') == 1
    return r.returncode, json.loads(r.stderr)['error']


def work_of(model, depth, tokens):
    """Bytes of a decoded token by kind, from the tensors and metadata of the file alone; KV is f16."""
    r = leat_json('inspect', model)
    meta = {m['key'].split('.', 1)[-1]: m['value'] for m in r['metadata']}
    get = lambda key, default=0: int(meta.get(key, default))
    tied = not any(g['group'] == 'output' for g in r['groups'])
    dense = experts = row = 0
    for t in r['tensors']:
        if len([d for d in t['dims'] if d > 1]) < 2:
            continue  # norms and biases: not matrices
        if t['group'] == 'experts':
            experts += t['bytes']
        elif t['group'] == 'embedding':
            row = t['bytes'] // t['dims'][1]
            dense += t['bytes'] if tied else 0
        else:
            dense += t['bytes']
    if experts:
        experts = experts * get('expert_used_count') // get('expert_count')
    heads, n_kv = get('attention.head_count'), get('attention.head_count_kv')
    width = get('embedding_length') // heads
    per_position = 2 * n_kv * (get('attention.key_length', width) + get('attention.value_length', width))
    window = get('attention.sliding_window')
    kv = 0
    for layer in range(get('block_count')):
        local = window and (layer + 1) % 6 != 0  # gemma 3: every sixth layer sees everything
        for i in range(tokens):  # the first id of a decode is at `depth`; those counted follow
            seen = depth + 2 + i
            kv += per_position * (min(seen, window) if local else seen)
    return {'dense': dense, 'expert': experts, 'row': row, 'kv': kv // tokens}


@pytest.mark.parametrize('preset', ['tiny-llama', 'tiny-qwen3moe', 'tiny-gemma3'])
def test_bytes_of_a_token(make_model, preset):
    model = make_model(preset)
    r = leat_json('bench', model, *SHORT, '--depth', '0,100')
    decodes = [t for t in r['tests'] if t['kind'] == 'decode']
    assert [t['depth_tokens'] for t in decodes] == [0, 100]
    for t in decodes:
        want = work_of(model, t['depth_tokens'], 4)
        assert {k: t[k + '_bytes_per_token'] for k in want} == want
        assert t['bytes_per_token'] == sum(want.values())
        assert t['bytes_per_s'] == pytest.approx(t['bytes_per_token'] * t['median_tokens_per_s'], rel=1e-6)
        assert t['read_limit_share'] == pytest.approx(t['bytes_per_s'] / r['limits']['read_bytes_per_s'], rel=1e-6)


def test_rates_and_order(make_model):
    r = leat_json('bench', make_model('tiny-llama'), '--prompt-tokens', '4,9', '--decode-tokens', '3,5', '--depth', '0,20', '--runs', '3')
    assert [(t['kind'], t['depth_tokens'], t['tokens']) for t in r['tests']] == [
        (k, d, n) for k, lengths in (('prompt', (4, 9)), ('decode', (3, 5))) for d in (0, 20) for n in lengths]
    assert r['limits']['read_bytes_per_s'] > 0 and r['limits']['read_1_thread_bytes_per_s'] > 0
    assert (r['limits']['int8_form'] is None) == (r['limits']['int8_macs_per_s'] is None)
    for t in r['tests']:
        runs = t['runs_tokens_per_s']
        assert len(runs) == t['runs'] == 3 and 0 < runs[0] <= runs[1] <= runs[2]
        assert (t['least_tokens_per_s'], t['median_tokens_per_s'], t['most_tokens_per_s']) == tuple(runs)
        # The rest is in memory. What is not in the page cache is read as whole blocks, two where a row crosses them.
        assert t['read_bytes_per_evaluated_token'] <= max(r['tests'][-1]['row_bytes_per_token'], 2 * 4096)


def test_multiply_adds_of_a_prompt(make_model):
    """F32 tiny-llama: a matrix of b bytes is b / 4 multiply-adds a token; the head counts once."""
    model = make_model('tiny-llama')
    i = leat_json('inspect', model)
    meta = {m['key'].split('.', 1)[-1]: m['value'] for m in i['metadata']}
    types = {t['type'] for t in i['tensors'] if len(t['dims']) == 2}
    assert types == {'F32'}
    head = [t for t in i['tensors'] if t['group'] == 'output' and len(t['dims']) == 2] or \
           [t for t in i['tensors'] if t['group'] == 'embedding']
    inner = sum(t['bytes'] // 4 for t in i['tensors'] if t['group'] in ('attention', 'ffn') and len(t['dims']) == 2)
    width = int(meta['embedding_length'])
    heads = int(meta['attention.head_count'])
    both = 2 * int(meta.get('attention.key_length', width // heads))
    for depth in (0, 7):
        attention = sum(depth + k + 1 for k in range(8)) * heads * both * int(meta['block_count'])
        r = leat_json('bench', model, '--prompt-tokens', '8', '--decode-tokens', '0', '--depth', depth, '-r', '1')
        assert len(r['tests']) == 1
        assert r['tests'][0]['macs_per_prompt'] == 8 * inner + head[0]['bytes'] // 4 + attention


def test_streamed(make_model):
    r = leat_json('bench', make_model('small-llama', '--format', 'Q8_0'), *SHORT, '--resident', '0')
    for t in r['tests']:
        assert t['read_bytes_per_evaluated_token'] > 0 and 0 <= t['wait_share'] <= 1
        assert t['expert_hit_share'] is None
    r = leat_json('bench', make_model('tiny-qwen3moe'), *SHORT)
    assert all(0 <= t['expert_hit_share'] <= 1 for t in r['tests'])


def test_one_session_gives_the_same_tests(make_model, tmp_path):
    """With one session a depth is cut back to instead of forked; windows make it evaluate again."""
    (tmp_path / 'config' / 'leat').mkdir(parents=True)
    (tmp_path / 'config' / 'leat' / 'config').write_text('sessions = 1\n')
    r = leat_json('bench', make_model('tiny-gemma3'), '--prompt-tokens', '90', '--decode-tokens', '2', '--depth', '100,0',
                  '-r', '2')
    assert [t['depth_tokens'] for t in r['tests']] == [100, 0, 100, 0]
    assert all(t['median_tokens_per_s'] > 0 for t in r['tests'])


def test_tables_fit(make_model):
    out = leat('bench', make_model('tiny-llama'), *SHORT, '--depth', '0,50', check=0).stdout
    assert max(map(len, out.split('\n'))) <= 80
    assert 'reads from memory' in out and 'least .. most' in out
    out = leat('bench', '--kernels', '--formats', 'Q8_0', '-t', '1', check=0).stdout
    assert max(map(len, out.split('\n'))) <= 80 and out.count('Q8_0') == 3


def test_kernels():
    r = leat_json('bench', '--kernels', '--formats', 'q4_0,F16', '-t', '2')
    assert [(k['format'], k['threads'], k['tokens']) for k in r['kernels']] == [
        (f, t, n) for f in ('F16', 'Q4_0') for t, n in ((1, 1), (2, 1), (2, 4), (2, 512))]
    for k in r['kernels']:
        assert k['weight_bytes_per_s'] > 0
        bytes_per_value = 2 if k['format'] == 'F16' else 18 / 32
        assert k['macs_per_s'] / k['weight_bytes_per_s'] == pytest.approx(k['tokens'] / bytes_per_value, rel=1e-6)
        assert (k['read_limit_share'] is None) == (k['tokens'] == 512)
        assert k['macs_limit'] == ('float' if k['format'] == 'F16' else 'int8')


def test_kernels_that_are_no_products():
    assert leat_json('bench', '--kernels', '--formats', 'Q8_0', '-t', '1')['others'] == []
    r = leat_json('bench', '--kernels', '-t', '1')
    names = [o['name'] for o in r['others']]
    assert len(set(names)) == len(names)
    for word in ('activations', 'rms norm', 'gated', 'softmax', 'rope', 'kv store', 'attention', 'sample'):
        assert any(word in n for n in names), word
    for o in r['others']:
        assert 0 < o['seconds'] < 1 and o['values'] > 0 and o['bytes_per_s'] > 0
        assert (o['macs_per_s'] is not None) == o['name'].startswith('attention')


@pytest.mark.parametrize('args', [
    ['--depth', '1,,2'], ['--depth', '-1'], ['--depth', ''], ['--prompt-tokens', '8x'], ['--decode-tokens', '99999999999'],
    ['--prompt-tokens', '0', '--decode-tokens', '0'], ['-r', '0'], ['-r', '101'], ['--formats', 'Q4_K'],
    ['--prompt-tokens', ','.join(['1'] * 17)], ['--depth', '100', '-c', '64'], ['-p', 'text'], ['--kernels']])
def test_refused(make_model, args):
    status, e = refused(make_model('tiny-llama'), *args)
    assert status == 2 and e['code'] == 'usage'


def test_refused_without_a_model(tmp_path):
    for args in ([], ['--kernels', '--formats', 'Q9'], ['--kernels', '--formats', ''], ['--kernels', '--depth', '0']):
        status, e = refused(*args)
        assert status == 2 and e['code'] == 'usage'
    status, e = refused(tmp_path / 'none')
    assert status == 1 and e['code'] == 'file'
