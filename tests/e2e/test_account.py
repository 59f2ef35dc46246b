"""What a run accounts for: --stats, --csv, --json of leat run and leat bench; its memory and what it writes. No speed is asserted."""
import csv, json, os, subprocess, sys

import pytest

from conftest import LEAT, leat, leat_json
from test_memory import peak_of

MB = 1000 * 1000
RUN = ['-p', 'the water that drove its wheel', '-n', 12, '--temp', 0, '--ignore-eos']
BENCH = ['--prompt-tokens', '8', '--decode-tokens', '4', '-r', '2', '-t', '2']
HEAD = ['measure', 'run', 'token', 'id', 'evaluated_tokens', 'total_s', 'compute_s', 'wait_s', 'sample_s', 'other_s', 'reads', 'read_bytes',
        'page_cache_read_bytes', 'stream_read_bytes', 'resident_read_bytes', 'expert_read_bytes', 'row_read_bytes', 'read_busy_s',
        'lanes_in_use', 'read_bytes_per_s', 'expert_hits', 'expert_misses', 'expert_evictions', 'major_faults', 'held_bytes', 'rss_bytes']


@pytest.fixture(autouse=True)
def own_folders(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'config'))
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))


def rows_of(path):
    with open(path, newline='') as f:
        rows = list(csv.DictReader(f))
    assert rows and list(rows[0]) == HEAD and all(None not in r.values() and None not in r for r in rows)
    return rows


def total(rows, key):
    return sum(float(r[key] or 0) for r in rows)


# ---- one row per token ----

@pytest.mark.parametrize('preset', ['small-llama', 'small-qwen3moe'])
def test_csv_adds_up_to_the_run(preset, make_model, tmp_path):
    path = tmp_path / 'tokens.csv'
    cache = ['--expert-cache', 0] if preset == 'small-qwen3moe' else []
    got = leat_json('run', make_model(preset, '--format', 'Q8_0'), *RUN, '--resident', 0, *cache, '--csv', path)
    rows, s = rows_of(path), got['stats']
    assert os.listdir(tmp_path) == ['tokens.csv']
    assert [int(r['id']) for r in rows] == got['tokens'] and [int(r['token']) for r in rows] == list(range(12))
    assert {r['measure'] for r in rows} == {'0'} and {r['run'] for r in rows} == {'1'}
    assert int(rows[0]['evaluated_tokens']) == len(got['prompt_tokens']) and {r['evaluated_tokens'] for r in rows[1:]} == {'1'}
    # the streaming goes on while the last row is written, and what was read before the run is in none of them
    assert 0 < total(rows, 'read_bytes') <= s['read_bytes'] and total(rows, 'reads') <= s['reads']
    assert total(rows, 'stream_read_bytes') > 0
    for key, whole in (('expert_hits', 'expert_hits'), ('expert_misses', 'expert_misses'), ('expert_evictions', 'expert_evictions')):
        assert total(rows, key) == s[whole]
    assert (total(rows, 'expert_misses') > 0) == (preset == 'small-qwen3moe')
    for key in ('compute', 'wait', 'sample'):
        assert total(rows, key + '_s') == pytest.approx(s['time'][key + '_s'], rel=0.01, abs=1e-6)
    assert total(rows, 'total_s') <= s['time']['total_s']
    for r in rows:
        parts = sum(float(r[k + '_s']) for k in ('compute', 'wait', 'sample', 'other'))
        assert parts == pytest.approx(float(r['total_s']), rel=0.01, abs=1e-5)
        assert (r['lanes_in_use'] == '') == (float(r['read_busy_s']) == 0)
        assert not r['lanes_in_use'] or float(r['lanes_in_use']) <= s['lanes'] + 1e-6
        assert int(r['held_bytes']) > 0 and int(r['rss_bytes']) > 0


def test_csv_of_a_bench(make_model, tmp_path):
    path = tmp_path / 'tokens.csv'
    leat('bench', make_model('tiny-llama'), *BENCH, '--depth', '0,20', '--csv', path, check=0)
    rows = rows_of(path)
    want = [(m, run, token) for m, n in ((0, 1), (1, 1), (2, 5), (3, 5)) for run in range(3) for token in range(n)]
    assert [(int(r['measure']), int(r['run']), int(r['token'])) for r in rows] == want


def test_csv_replaces_a_file_when_it_is_whole(make_model, tmp_path):
    model, path = make_model('tiny-llama'), tmp_path / 'tokens.csv'
    path.write_text('old')
    leat('run', model, *RUN, '--csv', path, '-c', 4, check=1)  # the prompt does not fit: not a row
    assert path.read_text() == 'old' and os.listdir(tmp_path) == ['tokens.csv']
    leat('run', model, *RUN, '--csv', path, check=0)
    assert len(rows_of(path)) == 12
    r = leat('run', model, *RUN, '--csv', '/dev/stdout', check=0)
    assert r.stdout.count('\n') >= 13 and ','.join(HEAD) in r.stdout


def test_csv_that_cannot_be_written(make_model, tmp_path):
    model = make_model('tiny-llama')
    for path, status, code in ((tmp_path / 'none' / 'x', 1, 'file'), (tmp_path, 1, 'file'), ('', 2, 'usage')):
        r = leat('run', model, *RUN, '--csv', path, '--json', check=status)
        assert json.loads(r.stderr)['error']['code'] == code and r.stdout == ''
    if os.path.exists('/dev/full'):
        for command in (['run', model, *RUN], ['bench', model, *BENCH]):
            r = leat(*command, '--csv', '/dev/full', check=1)
            assert r.stderr.startswith('leat: cannot write the CSV file /dev/full') and 'No space' in r.stderr
    assert os.listdir(tmp_path) == []


# ---- the drive, and what was not measured ----

def test_the_drive_beside_its_probe(make_model):
    r = leat_json('bench', make_model('small-llama', '--format', 'Q8_0'), *BENCH, '--resident', 0, '--direct', 'on')
    for d in [t['drive'] for t in r['tests']] + [r['stats']['drive']]:
        for probe in (d['probe_direct'], d['probe_buffered']):
            assert (probe['bytes_per_s'] is None) == (probe['not_measured'] is not None)
        assert d['reached_bytes_per_s'] > 0 and d['reached_not_measured'] is None
        assert d['urgent_bytes_per_s'] is None or d['urgent_bytes_per_s'] > 0
        if d['probe_direct']['bytes_per_s']:
            assert d['probed_bytes_per_s'] == d['probe_direct']['bytes_per_s']
            assert d['reached_share'] == pytest.approx(d['reached_bytes_per_s'] / d['probed_bytes_per_s'])
    for t in r['tests']:
        assert sum(t[k + '_share'] for k in ('compute', 'wait', 'sample', 'other')) == pytest.approx(1, abs=0.02)
        assert 0 < t['lanes_in_use'] <= r['stats']['lanes'] + 1e-6


def test_what_was_not_measured_says_so(make_model):
    model = make_model('tiny-llama')
    r = leat_json('bench', model, *BENCH)
    assert r['stats']['drive']['probed_bytes_per_s'] is None and r['stats']['memory']['huge_came_bytes'] is None
    t = r['tests'][-1]  # all in memory by then
    assert t['drive']['reached_share'] is None
    assert leat_json('run', model, *RUN)['stats']['drive']['probed_bytes_per_s'] is None
    r = leat('run', model, *RUN, '--stats', check=0)
    assert 'probe not measured' in r.stderr
    r = leat('bench', make_model('tiny-llama'), *BENCH, '--memory', '64M', check=0)
    assert 'reads from memory not measured' in r.stdout and 'reads from drive' in r.stdout


def test_time_bars(make_model):
    out = leat('bench', make_model('small-llama', '--format', 'Q8_0'), *BENCH, '--resident', 0, '--stats', check=0)
    lines = out.stdout.split('\n')
    assert max(map(len, lines[2:])) <= 80
    bars = [l.split()[-1] for l in lines if l.startswith(('prompt', 'decode')) and set(l.split()[-1]) <= set('#=s.')]
    assert len(bars) == 2 and {len(b) for b in bars} == {54} and all('#' in b for b in bars)
    assert lines[0].startswith('small-llama') and 'peak by the system' in out.stderr and 'major faults' in out.stderr


# ---- memory and writing ----

@pytest.mark.parametrize('preset', ['small-llama', 'small-qwen3moe'])
def test_peak_of_a_bench_stays_under_the_budget(preset, make_model):
    model = make_model(preset, '--format', 'Q4_K_M')
    args = ['bench', model, *BENCH, '-c', 512]
    least = json.loads(leat(*args, '--memory', '1M', '--json', check=1).stderr)['error']['needed_bytes']
    for budget in (least, least + 8 * MB):
        j, peak = peak_of(*args, '--memory', budget)
        assert 0 < peak <= budget, 'peak %d over the budget %d' % (peak, budget)
        assert j['stats']['memory']['rss_peak_bytes'] <= budget
        assert j['tests'][-1]['read_bytes_per_evaluated_token'] > 0


WRITTEN = r'''
import os, subprocess, sys
figures = lambda path: {k: int(v) for k, v in (l.split(': ') for l in open(path))}
with open(sys.argv[1], 'wb') as out:
    p = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=out)
    os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)  # over, and its account still there
    io = figures('/proc/%d/io' % p.pid)
    assert p.wait() == 0
print(io['wchar'], io['write_bytes'])
'''


def written_by(tmp_path, *args):
    """Bytes that a run of the program handed to write calls, and those that it caused to go to a drive; then those on standard output."""
    if not os.path.exists('/proc/self/io'):
        pytest.skip('this system keeps no account of what is written')
    out = tmp_path / 'out'
    r = subprocess.run([sys.executable, '-c', WRITTEN, str(out), LEAT, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       text=True, timeout=120)
    assert r.returncode == 0, r.stderr
    return [int(x) for x in r.stdout.split()] + [os.path.getsize(out)]


@pytest.mark.parametrize('preset', ['small-llama', 'small-qwen3moe'])
def test_a_run_writes_next_to_nothing(preset, make_model, tmp_path):
    model, table = make_model(preset, '--format', 'Q8_0'), tmp_path / 'tokens.csv'
    free = leat_json('run', model, *RUN)['stats']['memory']['planned_bytes']
    least = json.loads(leat('run', model, *RUN, '--memory', '1M', '--json', check=1).stderr)['error']['needed_bytes']
    calls, drive, out = written_by(tmp_path, 'run', model, *RUN, '--memory', (free + least) // 2, '--stats', '--csv', table)
    asked = out + os.path.getsize(table)
    assert out > 0 and calls >= asked
    assert calls - asked < 1 << 20
    assert drive - asked < 1 << 20


def test_the_account_of_writes_sees_what_is_written(make_model, tmp_path):
    """The test above can fail: logits that were not asked of it would be seen."""
    logits = tmp_path / 'logits'
    calls, drive, out = written_by(tmp_path, 'eval', make_model('tiny-llama'), '--tokens', '5 ' * 600, '-c', 1024, '--logits', logits)
    assert os.path.getsize(logits) > 1 << 20
    assert calls - out > 1 << 20
