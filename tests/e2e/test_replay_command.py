"""leat replay: its table, JSON and CSV, against a replay of its own in Python and the published figures."""
import itertools, json, lzma, os, subprocess, sys
import pytest
from conftest import LEAT, ROOT, data_path, leat, leat_json

CYCLES = '0.5,0.95,1.5,2,3,4'
# LRU, least decayed use and Belady in per cent, published with the traces.
FIGURES = {
    'qwen': [(0, 23.8, 39.5), (0, 34.5, 55.3), (38.1, 45.6, 66.7), (47.2, 53.2, 73.8), (63.0, 65.6, 82.8), (71.6, 74.6, 88.8)],
    'gptoss': [(0, 13.5, 29.4), (0, 21.0, 41.4), (17.7, 29.3, 52.0), (30.6, 34.8, 58.8), (42.1, 43.8, 67.0), (50.0, 50.0, 72.0)],
}


@pytest.fixture(scope='module', params=sorted(FIGURES))
def trace(request, tmp_path_factory):
    path = tmp_path_factory.mktemp('trace') / (request.param + '.csv')
    path.write_bytes(lzma.open(data_path('routes', request.param + '.route.csv.xz')).read())
    return request.param, path


def test_published_figures(trace):
    name, path = trace
    r = leat_json('replay', path)
    assert set(r) == {'cycle_bytes', 'rows'}
    assert r['cycle_bytes'] > 1 << 29
    assert [x['cycles'] for x in r['rows']] == [float(c) for c in CYCLES.split(',')]
    for row, (lru, decay, belady) in zip(r['rows'], FIGURES[name]):
        assert row['budget_bytes'] == int(row['cycles'] * r['cycle_bytes'])
        for policy, figure in (('lru', lru), ('decay', decay), ('belady', belady)):
            assert abs(100 * row[policy] - figure) <= 0.55, (row['cycles'], policy)
        policies = set(row) - {'budget_bytes', 'cycles', 'default'}
        assert policies >= {'belady', 'lru', 'slru', 'decay', 'aged', 'echo'}
        assert all(0 <= row[p] <= row['belady'] for p in policies)
        assert policies - {'belady'} == eviction_choices()
        # What the default is chosen for: never below decayed use, and no cliff below the cycle.
        assert row['default'] == row['echo'] and 100 * row['default'] >= decay
        assert row['default'] > row['decay'] + 0.01


def eviction_choices():
    """Of --eviction: the same policies."""
    table = leat_json('params')
    rows = table['params'] if 'params' in table else table
    return set(next(r for r in rows if r['key'] == 'eviction')['choices'])


def lru_by_hand(path, budget):
    """LRU written again: rows of the CSV, one call of the cache per pass and layer."""
    size, rows = {}, []
    for line in open(path):
        if line.startswith('# layer='):
            a = dict(x.split('=') for x in line[2:].split())
            size[int(a['layer'])] = int(a['expert_bytes'])
        elif line[0].isdigit():
            rows.append([int(x) for x in line.split(',')[:6]])
    cache, used, hit, asked = {}, 0, 0, 0   # dict: oldest first
    for (phase, layer), group in itertools.groupby(rows, lambda r: (r[1], r[3])):
        ids = sorted({r[5] for r in group})
        there = [i for i in ids if (layer, i) in cache]
        asked += phase * len(ids) * size[layer]
        hit += phase * len(there) * size[layer]
        for i in ids:
            used -= size[layer] if cache.pop((layer, i), None) else 0
            while used + size[layer] > budget and cache:
                old = next(iter(cache))
                del cache[old]
                used -= size[old[0]]
            cache[layer, i] = True
            used += size[layer]
    return hit / asked


def test_against_another_lru(trace):
    _, path = trace
    for row in leat_json('replay', path, '--budget-cycles', '1.25,2.5')['rows']:
        assert abs(row['lru'] - lru_by_hand(path, row['budget_bytes'])) < 0.005


def test_text(trace):
    _, path = trace
    out = leat('replay', path, check=0).stdout
    assert max(map(len, out.splitlines())) <= 80
    assert 'token cycle' in out and 'echo*' in out and 'belady' in out
    assert len([x for x in out.splitlines() if ' % ' in x]) == 5   # the plot's lines
    assert max(map(len, leat('replay', path, '--budget-cycles', '1', check=0).stdout.splitlines())) <= 80


def test_csv(trace, tmp_path):
    _, path = trace
    out = leat('replay', path, '--csv', check=0).stdout
    again = tmp_path / 'again.csv'
    again.write_text(out)
    assert leat('replay', again, '--csv', check=0).stdout == out
    assert leat_json('replay', again, '--budget-cycles', '1') == leat_json('replay', path, '--budget-cycles', '1')
    rows = lambda text: [x.split(',')[:6] for x in text.splitlines() if x[0].isdigit()]
    assert rows(out) == rows(open(path).read())


def made_up(tmp_path, kind, *args):
    path = tmp_path / 'made.csv'
    subprocess.run([sys.executable, os.path.join(ROOT, 'tools', 'make-trace'), kind, str(path), '--layers', '24', '--experts', '64',
                    '--used', '4', '--prompt', '20', *args], check=True)
    return leat_json('replay', path)['rows']


def test_change_of_topic(tmp_path):
    """Disjoint experts every 20 tokens: what was dear leaves; no cliff below the cycle."""
    for row in made_up(tmp_path, 'disjoint', '--group', '12', '--period', '20', '--tokens', '240'):
        assert row['default'] > row['decay'] + 0.05
        assert row['cycles'] > 1 or row['default'] > 0.1 > 0 == row['lru']
        assert row['default'] > 0.9 * row['lru']


def test_uniform_routing(tmp_path):
    """Nothing can be known: no policy beats the share of the experts that fits, and the default is near it."""
    for row in made_up(tmp_path, 'uniform', '--tokens', '200'):
        share = row['cycles'] * 4 / 64
        assert 0.65 * share < row['default'] < 1.05 * share
        assert all(row[p] < 1.05 * share for p in ('lru', 'slru', 'decay', 'aged'))


HEAD = '# route_trace v1\n# model=m arch=a n_layer=1 n_expert=4 n_expert_used=1\n# layer=0 expert_bytes=10\n' \
       'turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n'


def test_wrong_use(tmp_path):
    t = tmp_path / 't.csv'
    t.write_text(HEAD + '0,0,0,0,0,1,1,0,10\n0,1,1,0,0,1,1,1,0\n')
    assert leat_json('replay', t, '--budget-cycles', '1')['rows'][0]['lru'] == 1
    for args in ((), (t, '--budget-cycles', '0'), (t, '--budget-cycles', 'x'), (t, '--budget-cycles', '1,,2'), (t, t),
                 (t, '--budget-cycles', ','.join(['1'] * 33)), (t, '--memory', '1G')):
        r = leat('replay', *args)
        assert r.returncode == 2 and r.stderr, args
    r = leat('replay', tmp_path / 'none', '--json')
    assert r.returncode == 1 and 'none' in json.loads(r.stderr)['error']['message']
    t.write_text(HEAD + '0,0,0,0,0,1,1,0,10\n')
    r = leat('replay', t)
    assert r.returncode == 1 and 'no decoded token' in r.stderr


def test_csv_to_full_disk(tmp_path):
    t = tmp_path / 't.csv'
    t.write_text(HEAD + '0,0,0,0,0,1,1,0,10\n0,1,1,0,0,1,1,1,0\n')
    if not os.path.exists('/dev/full'):
        pytest.skip('no /dev/full')
    r = subprocess.run([LEAT, 'replay', str(t), '--csv'], stdout=open('/dev/full', 'w'), stderr=subprocess.PIPE)
    assert r.returncode == 1 and r.stderr
