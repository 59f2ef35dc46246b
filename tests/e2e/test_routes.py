"""Routing traces: what --trace-routes writes, read here by docs/routes.md alone; and leat bench --routes, which drives
a model with them."""
import json
import os
import signal
import struct
import subprocess
import sys

import pytest

from conftest import LEAT, ROOT, data_path, leat, leat_json

MASK = (1 << 64) - 1


@pytest.fixture(autouse=True)
def no_config(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'config'))


def fnv(data):
    h = 0xcbf29ce484222325
    for b in data:
        h = (h ^ b) * 0x100000001b3 & MASK
    return h


class Trace:
    """A file of our own form. Rows are (turn, phase, token, layer, experts, weights, hits)."""

    def __init__(self, path):
        self.data, self.at = open(path, 'rb').read(), 0
        magic, self.n_layers, self.n_experts, name = struct.unpack('<8sIII', self.take(20))
        assert magic == b'LEATRTE\1'
        self.model = self.take(name).decode()
        self.expert_bytes = struct.unpack(f'<{self.n_layers}Q', self.take(8 * self.n_layers))
        head = self.at
        assert self.figure(8) == fnv(self.data[:head])
        self.rows, self.blocks, self.ended = [], 0, False
        while not self.ended and len(self.data) - self.at >= 16:
            n, rows, check = struct.unpack('<IIQ', self.take(16))
            if n == 0:
                assert rows == 0 and check == len(self.rows) and self.at == len(self.data)
                self.ended = True
            elif len(self.data) - self.at < n:
                break
            else:
                self.blocks += 1
                end = self.at + n
                assert check == fnv(self.data[self.at:end])
                before = (0, 0, 0)
                for _ in range(rows):
                    before = self.row(before)
                assert self.at == end

    def take(self, n):
        self.at += n
        assert self.at <= len(self.data)
        return self.data[self.at - n:self.at]

    def figure(self, n):
        return int.from_bytes(self.take(n), 'little')

    def difference(self):
        v = shift = 0
        while True:
            b = self.figure(1)
            v |= (b & 127) << shift
            shift += 7
            if b < 128:
                return v // 2 if v % 2 == 0 else -(v // 2) - 1

    def row(self, before):
        flags = self.figure(1)
        turn, token, layer = (x + self.difference() for x in before)
        n = self.figure(1)
        experts = [self.figure(2 if self.n_experts > 256 else 1) for _ in range(n)]
        bits = self.figure((n + 7) // 8)
        weights = struct.unpack(f'<{n}f', self.take(4 * n)) if flags & 2 else None
        self.rows.append((turn, flags & 1, token, layer, experts, weights, [bits >> i & 1 for i in range(n)]))
        return turn, token, layer

    def calls(self, width):
        """[(phase, {expert: hit})]: what the cache was asked, layer by layer; a prompt in ubatches of width."""
        calls = []
        for turn, phase, token, layer, experts, _, hits in self.rows:
            key = (turn, phase, layer, token if phase else token // width)
            if not calls or calls[-1][0] != key:
                calls.append((key, {}))
            for expert, hit in zip(experts, hits):
                assert calls[-1][1].setdefault(expert, hit) == hit  # one call, one answer
        return [(key[1], wanted) for key, wanted in calls]

    def csv(self, path):
        lines = ['# route_trace v1', f'# model={self.model} arch=x n_layer={self.n_layers} n_expert={self.n_experts}']
        lines += [f'# layer={i} expert_bytes={b}' for i, b in enumerate(self.expert_bytes) if b]
        lines.append('turn,phase,step,layer,slot,expert,weight,residency,expert_bytes')
        for turn, phase, token, layer, experts, weights, hits in self.rows:
            for slot, (expert, weight, hit) in enumerate(zip(experts, weights, hits)):
                lines.append(f'{turn},{phase},{token},{layer},{slot},{expert},{weight:.9g},{hit},0')
        with open(path, 'w') as f:
            f.write('\n'.join(lines) + '\n')


def hits_of(calls, phase):
    asked = [hit for p, wanted in calls if p == phase for hit in wanted.values()]
    return sum(asked), len(asked) - sum(asked)


def make_trace(kind, path, *args):
    subprocess.run([sys.executable, os.path.join(ROOT, 'tools', 'make-trace'), kind, str(path), *map(str, args)], check=True)
    return path


# ---- what is recorded ----

def test_choices_of_a_reference(tmp_path):
    """Experts and weights of the first tokens, by a numpy program in float64 (../shared/data/README.md)."""
    cases = json.load(open(data_path('stories260K-moe', 'expected.json')))['varied']['cases']
    model = data_path('stories260K-moe', 'stories260K-moe8x2-varied-f32.gguf')
    compared = 0
    for case in cases:
        ids = case['prompt_ids']
        leat('run', model, '--tokens', ' '.join(map(str, ids)), '-n', '20', '--temp', '0', '--ignore-eos', '--kv-type', 'f32',
             '--trace-routes', tmp_path / 'trace', check=0)
        rows = {(r[2], r[3]): r for r in Trace(tmp_path / 'trace').rows}
        for want in case['routes_first_tokens']:
            at = want['pos'], want['layer']
            if at not in rows:  # the last layer of a prompt is evaluated for its last token alone
                assert at[1] == 4 and at[0] < len(ids) - 1
                continue
            chosen = sorted(zip(want['experts'], want['weights']))
            assert rows[at][4] == [e for e, _ in chosen]
            assert rows[at][5] == pytest.approx([w for _, w in chosen], abs=1e-5)
            assert rows[at][1] == (at[0] >= len(ids))
            compared += 1
    assert compared > 100


@pytest.mark.parametrize('preset', ['tiny-qwen3moe', 'tiny-mixtral'])
@pytest.mark.parametrize('width', [7, 64])
def test_every_token_in_every_layer(make_model, tmp_path, preset, width):
    model = make_model(preset)
    options = ['-b', width, '-c', 128, '--expert-cache', '1K']
    r = leat_json('run', model, '--tokens', ' '.join(map(str, range(3, 28))), '-n', '30', '--temp', '0', '--ignore-eos',
                  '--trace-routes', tmp_path / 'trace', *options)
    t = Trace(tmp_path / 'trace')
    assert t.ended and t.model == os.path.basename(model)
    layers = [i for i, b in enumerate(t.expert_bytes) if b]
    assert layers and len(t.rows) == (25 + 29) * len(layers) - (24 if layers[-1] == t.n_layers - 1 else 0)
    seen = set()
    for turn, phase, token, layer, experts, weights, hits in t.rows:
        assert turn == 0 and phase == (token >= 25) and layer in layers
        assert (token, layer) not in seen
        seen.add((token, layer))
        assert experts == sorted(set(experts)) and max(experts) < t.n_experts
        assert len(experts) == len(weights) == len(t.rows[0][4])
    for token in range(25 + 29):
        for layer in layers:
            assert (token, layer) in seen or (layer == t.n_layers - 1 and token < 24)
    calls = t.calls(width)
    hits, misses = (sum(x) for x in zip(hits_of(calls, 0), hits_of(calls, 1)))
    stats = r['stats']
    assert (stats['expert_hits'], stats['expert_misses']) == (hits, misses)
    assert misses > 0


def test_eval_and_bench_record(make_model, tmp_path):
    model = make_model('tiny-qwen3moe')
    leat('eval', model, '--tokens', '3 4 5 6', '--trace-routes', tmp_path / 'trace', check=0)
    t = Trace(tmp_path / 'trace')
    assert {r[:3] for r in t.rows} == {(0, 0, i) for i in range(4)} and t.ended
    assert len(t.rows) == 4 * sum(b > 0 for b in t.expert_bytes)
    leat('bench', model, '--prompt-tokens', '8', '--decode-tokens', '4', '-r', '1', '--trace-routes', tmp_path / 'trace', check=0)
    t = Trace(tmp_path / 'trace')
    assert {r[1] for r in t.rows} == {0, 1} and len({r[0] for r in t.rows}) > 2 and t.ended


# ---- where it is written ----

def test_refused(make_model, tmp_path):
    moe, dense = make_model('tiny-qwen3moe'), make_model('tiny-llama')
    run = ['--tokens', '3 4', '-n', '4', '--temp', '0']
    r = leat('run', dense, *run, '--trace-routes', tmp_path / 'trace')
    assert r.returncode == 2 and 'no experts' in r.stderr and not os.path.exists(tmp_path / 'trace')
    (tmp_path / 'other').write_text('precious')
    r = leat('run', moe, *run, '--trace-routes', tmp_path / 'other')
    assert r.returncode == 1 and 'not overwritten' in r.stderr and (tmp_path / 'other').read_text() == 'precious'
    r = leat('run', moe, *run, '--trace-routes', tmp_path / 'none' / 'trace')
    assert r.returncode == 1 and 'none/trace' in r.stderr
    r = leat('bench', '--kernels', '--trace-routes', tmp_path / 'trace')
    assert r.returncode == 2


def test_disk_full(make_model, tmp_path):
    """The text is whole, and that the trace is not is an error."""
    import resource
    model, path = make_model('tiny-qwen3moe'), tmp_path / 'trace'
    run = ['run', model, '--tokens', '3 4', '-n', '400', '--temp', '0', '--ignore-eos', '-c', '512']
    whole = leat_json(*run)
    r = leat(*run, '--json', '--trace-routes', path,
             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000)))
    assert r.returncode == 1 and json.loads(r.stdout)['tokens'] == whole['tokens']
    assert str(path) in json.loads(r.stderr)['error']['message']
    t = Trace(path)
    assert not t.ended and t.rows
    bench = leat('bench', model, '--routes', path, '-c', '512', check=0)
    assert 'cut off' in bench.stdout
    r = leat('run', model, '--tokens', '3 4', '-n', '4', '--trace-routes', '/dev/full')
    assert r.returncode == 1 and '/dev/full' in r.stderr


def test_killed(make_model, tmp_path):
    """What a killed run leaves is read up to its last whole block."""
    path = tmp_path / 'trace'
    p = subprocess.Popen([LEAT, 'run', make_model('tiny-qwen3moe'), '--tokens', '3 4', '-n', '100000', '--ignore-eos',
                          '--temp', '0', '-c', '120000', '--trace-routes', path], stdout=subprocess.DEVNULL)
    while p.poll() is None and (not os.path.exists(path) or os.path.getsize(path) < 100000):
        pass
    assert p.poll() is None
    p.send_signal(signal.SIGKILL)
    p.wait()
    t = Trace(path)
    assert not t.ended and t.blocks > 2
    tokens = len({r[2] for r in t.rows})
    r = leat_json('bench', make_model('tiny-qwen3moe'), '--routes', path)
    assert r['routes']['cut'] and r['routes']['prompt_tokens'] + r['routes']['decode_tokens'] == tokens


# ---- driving a model ----

CACHE = ['-b', '16', '--expert-cache', '1M', '--kv-type', 'f16']


@pytest.fixture(scope='session')
def recorded(make_model, tmp_path_factory):
    """(model, trace path, Trace) of a run whose cache holds a part of the experts."""
    model, path = make_model('tiny-qwen3moe'), tmp_path_factory.mktemp('routes') / 'trace'
    leat('run', model, '--tokens', ' '.join(str(7 * i % 200 + 3) for i in range(40)), '-n', '100', '--temp', '1.5', '--seed', '3',
         '--ignore-eos', '-c', '256', '--trace-routes', path, *CACHE, check=0)
    return model, path, Trace(path)


def part(r, phase):
    p = r['decode' if phase else 'prompt']
    return p['expert_hits'], p['expert_misses']


def test_hits_are_those_recorded(recorded, make_model, tmp_path):
    """The same choices through the same cache hit the same, whatever the model's own router thinks of the tokens; and
    what the driven run records is what drove it. Which of two slots is free first when reads are under way is up to the
    drive: a hit in a hundred may differ."""
    model, path, t = recorded
    other = make_model('tiny-qwen3moe', '--seed', '77')
    calls = t.calls(16)
    for m in (model, other):
        r = leat_json('bench', m, '--routes', path, '--trace-routes', tmp_path / 'again', *CACHE)
        assert (r['routes']['prompt_tokens'], r['routes']['decode_tokens'], r['routes']['turns']) == (40, 99, 1)
        for phase in (0, 1):
            got, want = part(r, phase), hits_of(calls, phase)
            assert sum(got) == sum(want) and abs(got[0] - want[0]) <= 2 + sum(want) // 100
        hits, misses = part(r, 1)
        assert hits > 100 and misses > 100 and r['decode']['expert_evictions'] > 0
        again = Trace(tmp_path / 'again')
        assert [x[:6] for x in again.rows] == [x[:6] for x in t.rows]
    assert not r['routes']['cut'] and r['decode']['tokens'] == 99 and r['decode']['read_bytes'] > 0
    assert r['decode']['expert_hit_share'] == pytest.approx(hits / (hits + misses))  # all experts are of one size


def test_hits_are_those_of_the_replay(recorded):
    """leat replay counts bytes, the cache has slots: as many as it read experts without evicting one."""
    model, path, t = recorded
    size, cycle = max(t.expert_bytes), leat_json('replay', path)['cycle_bytes']
    for cache in ('400K', '1M'):
        r = leat_json('bench', model, '--routes', path, '-b', '16', '--expert-cache', cache)
        slots = sum(r[p]['expert_misses'] - r[p]['expert_evictions'] for p in ('prompt', 'decode'))
        assert 8 < slots < sum(b > 0 for b in t.expert_bytes) * t.n_experts
        replayed = leat_json('replay', path, '--budget-cycles', slots * size / cycle)['rows'][0]
        assert round(replayed['budget_bytes'] / size) == slots
        got = r['decode']['expert_hit_share']
        assert got == pytest.approx(replayed['default'], abs=0.01) and 0.1 < got < replayed['belady']


def test_csv_drives_alike(recorded, tmp_path):
    model, path, t = recorded
    t.csv(tmp_path / 'trace.csv')
    a, b = leat_json('bench', model, '--routes', path, *CACHE), leat_json('bench', model, '--routes', tmp_path / 'trace.csv', *CACHE)
    for phase in (0, 1):
        assert sum(part(a, phase)) == sum(part(b, phase))
        assert abs(part(a, phase)[0] - part(b, phase)[0]) <= 2 + sum(part(a, phase)) // 100
    assert a['routes'] == b['routes']


def test_layers_differ(recorded, make_model):
    """A model with more layers takes the recorded ones round and round, one with fewer the first."""
    _, path, t = recorded
    layers = sum(b > 0 for b in t.expert_bytes)
    for n in (1, layers + 1):
        r = leat_json('bench', make_model('tiny-qwen3moe', '--set', f'L={n}'), '--routes', path)
        wanted = [set(x) for x in ({}, {})]
        for _, phase, token, layer, experts, _, _ in t.rows:
            for repeat in range(layer, n, layers):
                wanted[phase].update((token, repeat, e) for e in experts)
        assert sum(part(r, 1)) == len(wanted[1])


def test_turns(recorded, make_model, tmp_path):
    """Two turns and one without a prompt: every recorded token is evaluated once, in its own phase."""
    model, _, t = recorded
    lines = ['# route_trace v1', '# model=m n_layer=1 n_expert=%d' % t.n_experts, '# layer=0 expert_bytes=5',
             'turn,phase,step,layer,slot,expert,weight,residency,expert_bytes']
    used = len(t.rows[0][4])
    shape = [(0, [(0, 3), (1, 4)]), (1, [(0, 1), (1, 1)]), (2, [(1, 5)]), (5, [(0, 2)])]
    token, want = 0, []
    for turn, phases in shape:
        for phase, n in phases:
            for _ in range(n):
                experts = [(token * 3 + i) % t.n_experts for i in range(used)]
                want.append((phase if turn != 2 or want[-1][0] else 1, token, sorted(experts)))
                lines += [f'{turn},{phase},{token},0,{i},{e},0.1,0,5' for i, e in enumerate(experts)]
                token += 1
    (tmp_path / 'in.csv').write_text('\n'.join(lines) + '\n')
    r = leat_json('bench', model, '--routes', tmp_path / 'in.csv', '--trace-routes', tmp_path / 'out')
    assert r['routes']['turns'] == 4 and r['prompt']['tokens'] == 6 and r['decode']['tokens'] == 10
    rows = [x for x in Trace(tmp_path / 'out').rows if x[3] == 0]
    assert [(x[2], x[4]) for x in rows] == [(p, e) for _, p, e in want]


def test_made_up_traces(make_model, tmp_path):
    """What was kept is never what a disjoint trace wants next: with room for one group it misses when the group
    changes and hits within it."""
    model = make_model('tiny-qwen3moe', '--set', 'L=2')
    shape = ['--layers', 2, '--experts', 16, '--used', 4, '--prompt', 16, '--tokens', 120]
    a = make_trace('uniform', tmp_path / 'a.csv', *shape)
    assert a.read_bytes() == make_trace('uniform', tmp_path / 'b.csv', *shape).read_bytes()
    assert a.read_bytes() != make_trace('uniform', tmp_path / 'b.csv', *shape, '--seed', 2).read_bytes()
    hostile = make_trace('disjoint', tmp_path / 'd.csv', *shape, '--group', 4)
    uniform, disjoint = (leat_json('bench', model, '--routes', p, '--expert-cache', '600K') for p in (a, hostile))
    for r in (uniform, disjoint):
        assert sum(part(r, 1)) == 120 * 2 * 4
        assert part(r, 1)[0] > 0
    changes = len({(t // 20) for t in range(16, 136)})
    assert part(disjoint, 1)[1] >= (changes - 1) * 2 * 4


@pytest.mark.parametrize('kind', ['uniform', 'disjoint'])
def test_memory_under_hostile_traffic(make_model, tmp_path, kind):
    """The ceiling holds, and the cache works, whatever is asked of it."""
    model = make_model('small-qwen3moe', '--format', 'Q4_K_M')
    path = make_trace(kind, tmp_path / 'trace.csv', '--layers', 6, '--experts', 32, '--used', 4, '--prompt', 70, '--tokens', 200)
    r = leat('bench', model, '--routes', path, '--memory', '1M', '--json', check=1)
    least = json.loads(r.stderr)['error']['needed_bytes']
    for budget in (least, least + (4 << 20)):
        r = leat_json('bench', model, '--routes', path, '--memory', budget)
        assert r['decode']['tokens'] == 200 and r['decode']['expert_evictions'] > 1000
        assert 0 < r['stats']['memory']['rss_peak_bytes'] <= budget


def test_routes_refused(recorded, make_model, tmp_path):
    model, path, t = recorded

    def refused(status, *args):
        plain, r = leat('bench', *args), leat('bench', *args, '--json')
        assert plain.returncode == r.returncode == status and plain.stdout == r.stdout == ''
        assert plain.stderr.startswith('leat: ') and plain.stderr.count('\n') == 1
        return json.loads(r.stderr)['error']['message']

    assert '--runs' in refused(2, model, '--routes', path, '-r', '2')
    assert 'depth' in refused(2, model, '--routes', path, '--depth', '4')
    assert 'of 8' in refused(2, make_model('tiny-mixtral'), '--routes', path) or t.n_experts == 8
    refused(2, make_model('tiny-llama'), '--routes', path)
    refused(1, model, '--routes', tmp_path / 'none')
    assert 'not a routing trace' in refused(1, model, '--routes', model)
    assert '--context' in refused(1, model, '--routes', path, '-c', '64')
    uneven = tmp_path / 'uneven.csv'
    t.csv(uneven)
    lines = uneven.read_text().split('\n')
    uneven.write_text('\n'.join(lines[:-2]) + '\n')
    assert 'one number' in refused(1, model, '--routes', uneven)
    empty = tmp_path / 'empty.csv'
    empty.write_text('\n'.join(x for x in lines if x and x[0] in '#t') + '\n')
    assert 'no token' in refused(1, model, '--routes', empty)
