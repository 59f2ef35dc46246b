"""The program from outside: commands, flags, exit statuses, what goes where. Models are made on the way or come from the shared test data."""
import json, math, os, re, shutil, signal, subprocess, sys, time
import numpy as np
import pytest
from conftest import LEAT, ROOT, data_path, leat, leat_json

GREEDY = ['--temp', '0', '--ignore-eos']


@pytest.fixture(scope='module')
def model(make_model):
    return make_model('tiny-llama')


@pytest.fixture(scope='module')
def moe(make_model):
    return make_model('tiny-qwen3moe')


@pytest.fixture(autouse=True)
def no_config(monkeypatch, tmp_path):
    """The user's own configuration must not reach the tests."""
    monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'config'))


def write_config(tmp_path, text):
    os.makedirs(tmp_path / 'config' / 'leat', exist_ok=True)
    (tmp_path / 'config' / 'leat' / 'config').write_text(text)


def error_of(*args, status, **kw):
    """The error object of a call that must fail, in both forms."""
    plain = leat(*args, **kw)
    r = leat(*args, '--json', **kw)
    assert plain.returncode == r.returncode == status, plain.stderr
    assert plain.stdout == r.stdout == ''
    assert plain.stderr.startswith('leat: ')
    e = json.loads(r.stderr)
    assert list(e) == ['error'] and e['error']['message']
    return e['error']


# ---- run ----

def test_greedy_is_exact_on_a_trained_model():
    m = data_path('stories260K', 'stories260K-f32.gguf')
    cases = json.load(open(data_path('stories260K', 'expected.json')))['cases']
    for c in cases:
        stop = c['first_stop_index']
        r = leat_json('run', m, '-p', c['prompt'], '-n', 200 if stop is None else stop, *GREEDY, '--kv-type', 'f32')
        assert r['prompt_tokens'] == c['prompt_ids']
        assert r['tokens'] == c['greedy_ids'][:stop]
        assert r['text'] == c['greedy_text_to_stop'], c['prompt']
        assert r['finish_reason'] == 'length'


def test_plain_output_is_the_text_alone(model):
    args = ['run', model, '-p', 'hello', '-n', '40', *GREEDY]
    r = leat(*args, check=0)
    assert r.stdout == leat_json(*args)['text']
    assert r.stderr == ''  # silent in a pipe


def test_json_shape(model):
    r = leat_json('run', model, '-p', 'hello', '-n', 5, '--seed', 7)
    assert list(r) == ['text', 'tokens', 'prompt_tokens', 'finish_reason', 'seed', 'stats']
    assert len(r['tokens']) == 5 and r['seed'] == 7
    s = r['stats']
    for k in ('load_s', 'prompt_s', 'prompt_per_s', 'decode_s', 'decode_per_s'):
        assert s[k] > 0, k
    for k in ('read_bytes', 'read_bytes_per_token', 'passes', 'reads', 'resident_read_bytes'):
        assert s[k] > 0, k
    assert s['generated_tokens'] == 5 and s['prompt_tokens'] == len(r['prompt_tokens'])
    t = s['time']
    assert abs(t['wait_s'] + t['compute_s'] + t['sample_s'] + t['other_s'] - t['total_s']) < 1e-6 * max(1, t['total_s']) + 1e-6
    rows = s['memory']['rows']
    assert {'process', 'model', 'kv_cache', 'resident', 'logits'} <= {x['row'] for x in rows}
    assert sum(x['held_bytes'] for x in rows) == s['memory']['held_bytes'] <= s['memory']['ceiling_bytes']
    assert 0 < s['memory']['rss_peak_bytes'] <= s['memory']['held_bytes']


def test_ledger_is_what_was_planned(model, moe):
    """P50: the figures of the plan equal what the run then holds."""
    for m in (model, moe):
        s = leat_json('run', m, '-p', 'hello', '-n', 5)['stats']['memory']
        for x in s['rows']:
            assert x['held_bytes'] <= x['planned_bytes'] and x['held_bytes'] >= 0.8 * x['planned_bytes'], x


def test_seed_and_sampling(model):
    args = ['run', model, '-p', 'hello', '-n', 30, '--ignore-eos', '--temp', '1.5', '--top-k', '0', '--top-p', '1', '--min-p', '0']
    a, b, c = (leat_json(*args, '--seed', s)['tokens'] for s in (1, 1, 2))
    assert a == b != c
    r = leat_json(*args)  # a seed that was drawn is said, and repeats
    assert leat_json(*args, '-s', r['seed'])['tokens'] == r['tokens']
    greedy = leat_json('run', model, '-p', 'hello', '-n', 30, *GREEDY)['tokens']
    for same in (['--top-k', '1'], ['--top-p', '0'], ['--min-p', '1']):
        assert leat_json('run', model, '-p', 'hello', '-n', 30, '--ignore-eos', *same)['tokens'] == greedy
    assert a != greedy


def test_penalties_and_bias(model):
    greedy = leat_json('run', model, '-p', 'hello', '-n', 20, *GREEDY)['tokens']
    banned = leat_json('run', model, '-p', 'hello', '-n', 20, *GREEDY, '--logit-bias', '%d=-inf' % greedy[0])['tokens']
    assert greedy[0] not in banned
    forced = leat_json('run', model, '-p', 'hello', '-n', 5, *GREEDY, '--logit-bias', '100=1000')['tokens']
    assert forced == [100] * 5
    spread = leat_json('run', model, '-p', 'hello', '-n', 60, *GREEDY, '--logit-bias', '100=50', '--frequency-penalty', '20',
                       '--repeat-last-n', '-1')['tokens']
    assert 1 < spread.count(100) < 10
    for flag, value in (('--presence-penalty', '100'), ('--repeat-penalty', '100')):
        once = leat_json('run', model, '-p', 'hello', '-n', 30, *GREEDY, '--logit-bias', '100=60', flag, value)['tokens']
        assert once.count(100) == 1


def test_stop_strings_cut_at_every_byte():
    m = data_path('stories260K', 'stories260K-f32.gguf')
    args = ['run', m, '-p', 'Once upon a time', '-n', 40, *GREEDY]
    whole = leat_json(*args)['text']
    for at in range(0, len(whole) - 3, 5):
        for n in (1, 3):
            stop = whole[at:at + n]
            r = leat_json(*args, '--stop', stop)
            assert r['text'] == whole[:whole.index(stop)] and r['finish_reason'] == 'stop' and r['stop_string'] == stop
    r = leat(*args, '--stop', 'not in there', '--stop', whole[30:35], check=0)
    assert r.stdout == whole[:whole.index(whole[30:35])]


def test_end_token(model):
    v = leat_json('tokenize', model, '-p', 'x')  # </s> is id 2 in the made-up vocabulary
    assert v['pieces'][0] == '<s>'
    r = leat_json('run', model, '-p', 'hello', '--temp', '0', '--logit-bias', '2=1000')
    assert r['finish_reason'] == 'stop' and r['tokens'] == [2] and r['text'] == '' and 'stop_string' not in r
    r = leat_json('run', model, '-p', 'hello', '-n', 3, *GREEDY, '--logit-bias', '2=1000')
    assert r['finish_reason'] == 'length' and r['tokens'] == [2, 2, 2] and r['text'] == ''
    r = leat_json('run', model, '-p', 'hello', '-n', 2, *GREEDY, '--logit-bias', '2=1000', '--special')
    assert r['text'] == '</s></s>'


def test_lengths(model):
    r = leat_json('run', model, '-p', 'hello', '-n', 0)
    assert r['tokens'] == [] and r['finish_reason'] == 'length' and r['stats']['decode_per_s'] is None
    n = len(r['prompt_tokens'])
    r = leat_json('run', model, '-p', 'hello', '-c', n + 9, *GREEDY)
    assert len(r['tokens']) == 9 and r['finish_reason'] == 'length'
    e = error_of('run', model, '-p', 'hello ' * 30, '-c', 20, status=1)
    assert e['code'] == 'context' and '20' in e['message']


def test_prompts(model, tmp_path):
    bos = leat_json('run', model, '-p', '', '-n', 1)['prompt_tokens']
    assert bos == [1]  # BOS alone
    f = tmp_path / 'prompt'
    f.write_bytes(b' two \n\n')
    by_file = leat_json('run', model, '-f', f, '-n', 1)['prompt_tokens']
    by_text = leat_json('run', model, '-p', ' two \n\n', '-n', 1)['prompt_tokens']
    by_stdin = json.loads(subprocess.run([LEAT, 'run', model, '-f', '-', '-n', '1', '--json'], input=b' two \n\n',
                                         stdout=subprocess.PIPE, check=True).stdout)['prompt_tokens']
    assert by_file == by_text == by_stdin
    assert by_text != leat_json('run', model, '-p', ' two', '-n', 1)['prompt_tokens']  # nothing is trimmed
    ids = leat_json('run', model, '--tokens', '1, 5 9', '-n', 1)['prompt_tokens']
    assert ids == [1, 5, 9]
    assert leat_json('run', model, '-p', 'a', '--no-bos', '-n', 1)['prompt_tokens'][0] != 1
    text = leat_json('run', model, '-p', 'a</s>', '-n', 1)['prompt_tokens']
    special = leat_json('run', model, '-p', 'a</s>', '-n', 1, '--special')['prompt_tokens']
    assert 2 not in text and special[-1] == 2
    assert leat_json('run', '-m', model, '-p', 'a', '-n', 1)['prompt_tokens'][0] == 1
    f.write_bytes(b'a\0b\xff\xfe')  # NUL and invalid UTF-8 are no reason to stumble
    assert len(leat_json('run', model, '-f', f, '-n', 1)['prompt_tokens']) > 3


def test_chat_is_not_there_yet(model):
    assert 'chat templates' in error_of('run', model, 'a question', status=2)['message']
    assert 'chat templates' in error_of('run', model, '-p', 'x', 'a question', status=2)['message']
    assert 'prompt' in error_of('run', model, status=2)['message']


# ---- the budget ----

def test_refusal_names_a_figure_that_works(model, moe):
    for m in (model, moe):
        base = ['run', m, '-p', 'hello', '-n', '4', *GREEDY]
        want = leat_json(*base)['tokens']
        e = error_of(*base, '--memory', '1M', status=1)
        assert e['code'] == 'memory' and e['needed_bytes'] > 1 << 20
        rows = e['budget']['rows']
        assert sum(r['planned_bytes'] for r in rows) == e['budget']['total_bytes'] == e['needed_bytes']
        plain = leat(*base, '--memory', '1M').stderr
        for r in rows:
            assert '%d bytes' % r['planned_bytes'] in plain or r['row'] == 'process'
        r = leat_json(*base, '--memory', e['needed_bytes'])
        assert r['tokens'] == want
        # the smallest that works, found by halving, is that figure less the slack for a process row that varies by some pages
        lo, hi = 1 << 20, e['needed_bytes']
        while hi - lo > 4096:
            mid = (lo + hi) // 2
            ok = leat(*base, '--memory', mid).returncode == 0
            lo, hi = (lo, mid) if ok else (mid, hi)
        assert e['needed_bytes'] - (3 << 19) < hi <= e['needed_bytes']


def test_ceiling_holds(make_model):
    """VmHWM stays under the budget, down to the smallest, with the context filled."""
    m = make_model('small-llama')
    ids = ' '.join(str(3 + i * 37 % 4000) for i in range(120))
    base = ['run', m, '--tokens', ids, '-n', '8', '-c', '128', *GREEDY]
    want = leat_json(*base)
    size = os.path.getsize(m)
    assert want['stats']['stream_read_bytes'] == 0
    for extra in (['-b', '128'], ['-b', '16', '-t', '8', '--lanes', '32'], ['-b', '16', '--direct', 'off'], ['-b', '16', '-t', '1', '--lanes', '1']):
        needed = error_of(*base, *extra, '--memory', '1M', status=1)['needed_bytes']
        for budget in (needed, (needed + size) // 2):
            s = leat_json(*base, *extra, '--memory', budget)
            assert s['tokens'] == want['tokens']
            memory = s['stats']['memory']
            assert memory['rss_peak_bytes'] <= budget and memory['held_bytes'] <= budget, (extra, memory)
            assert s['stats']['stream_read_bytes'] > 0
            print(extra, budget, round(memory['rss_peak_bytes'] / budget, 3))


def test_expert_cache(moe):
    base = ['run', moe, '-p', 'hello', '-n', '20', *GREEDY, '-b', '1']
    none, all_of_it = leat_json(*base, '--expert-cache', '0'), leat_json(*base)
    assert none['tokens'] == all_of_it['tokens']
    assert none['stats']['expert_evictions'] > 0 and all_of_it['stats']['expert_evictions'] == 0
    assert all_of_it['stats']['expert_hits'] > none['stats']['expert_hits']


def test_every_tuning_flag_moves_something(model, moe):
    """REPORTS 17: two values of each flag differ in a figure that the flag is about."""
    def stats(m, *args):
        return leat_json('run', m, '-p', 'hello hello hello hello', '-n', 12, *GREEDY, *args)['stats']

    def row(s, key):
        return {x['row']: x['planned_bytes'] for x in s['memory']['rows']}.get(key, 0)
    assert stats(model, '-b', 1)['passes'] > stats(model, '-b', 64)['passes']
    assert row(stats(model, '-c', 64), 'kv_cache') < row(stats(model, '-c', 2048), 'kv_cache')
    q4, q8, f16, f32 = (row(stats(moe, '--kv-type', t), 'kv_cache') for t in ('q4_0', 'q8_0', 'f16', 'f32'))
    assert q4 < q8 < f16 < f32
    assert stats(model, '--resident', 0)['stream_read_bytes'] > 0 == stats(model)['stream_read_bytes']
    assert stats(moe, '--expert-cache', 0)['expert_evictions'] > 0
    few = {p: stats(moe, '--eviction', p, '--expert-cache', '1M', '-b', 1) for p in ('echo', 'decay', 'lru', 'slru', 'aged')}
    assert all(s['eviction'] == p for p, s in few.items())
    assert len({s['expert_hits'] for s in few.values()}) > 2
    assert leat('run', model, '-p', 'hello', '--eviction', 'lru').returncode == 2
    assert stats(model, '--lanes', 3)['lanes'] == 3 and stats(model, '--lanes', 1)['reads_in_flight_peak'] == 1
    assert stats(model, '-t', 3)['threads'] == 3
    assert stats(model, '--isa', 'scalar')['isa'] == 'scalar'
    assert stats(model, '--direct', 'off')['buffered_files'] == 1
    assert stats(model, '--memory', '1G')['memory']['ceiling_bytes'] == 1 << 30


# ---- wrong usage ----

@pytest.mark.parametrize('args', [
    ['--nonsense'], ['--top-k', '-1'], ['--top-k', '4x'], ['--temp', 'hot'], ['--top-p', '1.1'], ['--memory', 'lots'], ['--kv-type', 'f8'],
    ['--lanes', '0'], ['--lanes', '65'], ['--threads', '0'], ['-n', '-2'], ['--logit-bias', '5'], ['--logit-bias', '99999=1'],
    ['--seed', '-3'], ['--decode'], ['--logits', 'x'], ['--isa', 'mmx'], ['--expert-cache', '1G'], ['--tokens', '1 x'],
    ['--tokens', '1'], ['-f', '/dev/null'], ['--tokens', '999999999999'], ['a', 'b', 'c', 'd', 'e'],
])
def test_wrong_usage(model, args):
    e = error_of('run', model, '-p', 'x', *args, status=2)
    assert e['code'] == 'usage'


def test_hints(model):
    assert '--top-k' in error_of('run', model, '-p', 'x', '--topk', '3', status=2)['message']
    assert 'eval' in error_of('evaluate', status=2)['message']
    assert leat().returncode == 2
    assert error_of('run', status=2)['code'] == 'usage'
    assert error_of('run', model, '--tokens', '1 512', '-n', 1, status=2)['message'].count('511')


def test_files_that_are_not_there(tmp_path, model):
    assert error_of('run', tmp_path / 'none.gguf', '-p', 'x', status=1)['code'] == 'file'
    assert error_of('run', model, '-f', tmp_path / 'none', status=1)['code'] == 'file'
    assert error_of('tokenize', tmp_path / 'none', '-p', 'x', status=1)['code'] == 'file'
    assert error_of('inspect', tmp_path / 'none', status=1)['code'] == 'file'
    bad = tmp_path / 'bad\nname.gguf'
    bad.write_bytes(b'GGUF\x03\0\0\0')
    e = error_of('run', bad, '-p', 'x', status=1)
    assert '\n' not in e['message']


# ---- signals and pipes ----

def start(*args, **kw):
    return subprocess.Popen([LEAT, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)


def busy(p, seconds):
    """Waits until the process has computed for so long: then it is in the middle of its work."""
    tick = os.sysconf('SC_CLK_TCK')
    while p.poll() is None:
        with open('/proc/%d/stat' % p.pid) as f:
            fields = f.read().rsplit(')', 1)[1].split()
        if (int(fields[11]) + int(fields[12])) / tick >= seconds:
            return
        time.sleep(0.01)
    raise AssertionError('ended early: %s' % p.stderr.read())


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c(make_model, number):
    m = make_model('small-llama')
    args = ['run', m, '-p', 'hello', '-c', '100000', *GREEDY]
    p = start(*args)
    first = os.read(p.stdout.fileno(), 16)
    assert first
    p.send_signal(number)
    out, err = p.communicate(timeout=20)
    assert p.returncode == 1 and b'cancelled' in err

    p = start(*args, '--json')
    busy(p, 1.0)
    p.send_signal(number)
    out, err = p.communicate(timeout=20)
    r = json.loads(out)
    assert p.returncode == 1 and r['finish_reason'] == 'cancelled' and len(r['tokens']) > 0 and err == b''
    assert r['stats']['generated_tokens'] == len(r['tokens'])


def test_ctrl_c_in_a_long_prompt(make_model):
    m = make_model('small-llama')
    ids = ' '.join(str(3 + i * 37 % 4000) for i in range(12000))
    p = start('run', m, '--tokens', ids, '-c', '16000', '-n', '1', '--json', '-t', '1')
    busy(p, 1.0)
    asked = time.monotonic()
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=20)
    r = json.loads(out)
    assert p.returncode == 1 and r['finish_reason'] == 'cancelled' and r['tokens'] == []
    assert time.monotonic() - asked < 3  # a unit's time, not a pass's


def test_broken_pipe_is_quiet(model):
    p = start('run', model, '-p', 'hello', '-c', '20000', *GREEDY)
    assert os.read(p.stdout.fileno(), 8)
    p.stdout.close()
    err = p.stderr.read()
    assert p.wait(timeout=20) == 1 and err == b''


def test_full_disk_is_said(model):
    with open('/dev/full', 'w') as full:
        p = subprocess.run([LEAT, 'run', model, '-p', 'hello', '-n', '5'], stdout=full, stderr=subprocess.PIPE)
    assert p.returncode == 1 and b'No space left' in p.stderr


def test_storage_that_fails_in_the_middle(make_model, tmp_path):
    """What was generated stands, finish_reason says error, and the error object says why."""
    m = str(tmp_path / 'model.gguf')
    for extra in ([], ['--json']):
        shutil.copy(make_model('small-llama'), m)
        p = start('run', m, '-p', 'hello', '-c', '100000', *GREEDY, '--resident', '0', *extra)
        busy(p, 0.5)
        if not extra:
            assert os.read(p.stdout.fileno(), 1)
        os.truncate(m, os.path.getsize(m) // 2)
        out, err = p.communicate(timeout=30)
        assert p.returncode == 1
        if extra:
            r, e = json.loads(out), json.loads(err)['error']
            assert r['finish_reason'] == 'error' and e['code'] == 'file' and 'model.gguf' in e['message']
        else:
            assert err.startswith(b'leat: ') and b'model.gguf' in err


# ---- a terminal ----

def on_terminal(*args, timeout=60):
    """Runs the program with standard error on a terminal; gives (stdout, what the terminal got)."""
    master, slave = os.openpty()
    p = subprocess.Popen([LEAT, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    shown = b''
    while True:
        try:
            got = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not got:
            break
        shown += got
    os.close(master)
    out = p.stdout.read()
    assert p.wait(timeout=timeout) == 0
    return out.decode(), shown.decode()


def test_progress_on_a_terminal(make_model):
    m = make_model('small-llama')
    ids = ' '.join(str(3 + i * 37 % 4000) for i in range(1500))
    args = ['run', m, '--tokens', ids, '-c', '1600', '-n', '4', '-t', '1', '-b', '16', *GREEDY]
    out, shown = on_terminal(*args)
    assert 'leat: dense weights in memory' in shown  # one line says how
    steps = [int(x) for x in re.findall(r'\rprompt: (\d+) of 1500 tokens', shown)]
    assert len(steps) > 2 and steps == sorted(steps) and steps[-1] > steps[0]
    assert shown.endswith('\r\x1b[K')  # and nothing of it stays
    assert out == leat(*args, check=0).stdout


# ---- statistics ----

def test_stats_table(model):
    r = leat('run', model, '-p', 'hello', '-n', 10, '--stats', check=0)
    lines = r.stderr.split('\n')
    assert max(map(len, lines[1:])) <= 80
    for word in ('prompt', 'decode', 'tokens/s', 'waiting for reads', 'computing', 'sampling', 'KV cache', 'peak by the system', 'read per token'):
        assert word in r.stderr, word
    assert 'dense weights in memory' in lines[0]
    r = leat('run', model, '-p', 'hello', '-n', 10, '--stats', '--resident', '0', check=0)
    assert 'stream' in r.stderr.split('\n')[0]


# ---- configuration ----

def test_config_file(model, tmp_path):
    write_config(tmp_path, '# mine\npredict = 3\ntemp = 0\nstop = "\\n\\n"\n')
    assert len(leat_json('run', model, '-p', 'hello', '--ignore-eos')['tokens']) == 3
    assert len(leat_json('run', model, '-p', 'hello', '--ignore-eos', '-n', 4)['tokens']) == 4
    shown = leat_json('run', model, '--show-config')
    assert shown['valid'] and shown['config']['predict'] == {'value': 3, 'source': 'config file'}
    assert shown['config']['stop']['value'] == ['\n\n'] and shown['config']['top_k']['source'] == 'default'
    plain = leat('run', model, '--show-config', check=0).stdout
    assert 'predict = 3\n' in plain and 'stop = "\\n\\n"\n' in plain
    write_config(tmp_path, '\n'.join(x for x in plain.split('\n')))  # what it prints can be read back
    again = leat_json('run', model, '--show-config')['config']
    for k, v in shown['config'].items():
        assert again[k]['value'] == v['value'], k
    write_config(tmp_path, 'predict = 3\nnonsense = 1\n')
    e = error_of('run', model, '-p', 'x', status=2)
    assert 'line 2' in e['message'] and 'nonsense' in e['message']
    r = leat('run', model, '--show-config', '--top-k', '-7')
    assert r.returncode == 2 and 'not valid' in r.stdout


def test_config_file_of_what_was_shown(model, tmp_path):
    """Saving --show-config must not change what the next call does."""
    for args in (['run', model, '-p', 'hello', '-n', '3', *GREEDY], ['eval', model, '--tokens', '1 5', '--logits', tmp_path / 'out'],
                 ['tokenize', model, '-p', '1 5', '--decode'], ['inspect', model]):
        write_config(tmp_path, '')
        want = leat(args[0], model, '-p', 'hello', check=0).stdout if args[0] == 'tokenize' else None
        shown = leat(*args, '--show-config', check=0).stdout
        write_config(tmp_path, shown)
        assert not re.search('^(model|prompt|file|tokens|decode|logits|show_config|help) ', shown, re.M)
        assert leat(*args, check=0).stdout
        assert want is None or leat('tokenize', model, '-p', 'hello', check=0).stdout == want
    for key in ('model', 'prompt', 'file', 'tokens', 'decode', 'logits', 'show_config', 'help'):
        write_config(tmp_path, '\n%s = true\n' % key)
        e = error_of('run', model, '-p', 'x', status=2)
        assert 'line 2' in e['message'] and key in e['message'] and 'command line only' in e['message']


def test_context_beyond_the_trained(model):
    trained = leat_json('inspect', model)['model']['context_trained']
    for args in (['run', model, '-p', 'a', '-n', '1'], ['eval', model, '--tokens', '1 5']):
        over, within = [*args, '-c', trained + 1], [*args, '-c', trained]
        assert str(trained) in leat_json(*over)['warning'] and 'warning' not in leat_json(*within)
        assert 'trained for' in leat(*over, '--stats', check=0).stderr and leat(*over, check=0).stderr == ''
        assert 'trained for' in on_terminal(*over)[1] and 'trained for' not in on_terminal(*within)[1]


def test_params_table():
    rows = leat_json('params')['params']
    keys = [r['key'] for r in rows]
    assert len(set(keys)) == len(keys) and {'memory', 'context', 'temp', 'stop', 'kv_type'} <= set(keys)
    for r in rows:
        assert r['help'] and r['label'] and r['group'], r['key']
    assert leat('params', check=0).stdout.count('--memory') == 1


def test_help_version_and_man_page():
    assert re.match(r'leat \d+\.\d+\.\d+$', leat('--version', check=0).stdout)
    text = leat('help', check=0).stdout
    for c in ('run', 'inspect', 'tokenize', 'eval', 'bench', 'params'):
        assert 'leat %s' % c in text
        usage = leat(c, '--help', check=0).stdout
        assert leat('help', c, check=0).stdout == usage and usage.startswith('usage: leat %s' % c)
        assert max(map(len, usage.split('\n'))) <= 80 and ' \n' not in usage
        assert ('SIZE is' in usage) == ('--memory' in usage)
    assert max(map(len, text.split('\n'))) <= 80
    page = leat('help', 'man', check=0).stdout
    assert open(os.path.join(ROOT, 'docs', 'leat.1')).read() == page, 'docs/leat.1 is old: leat help man > docs/leat.1'
    r = subprocess.run(['man', '--warnings', '-E', 'UTF-8', '-l', '-Tutf8', '-Z', '-'], input=page.encode(), stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE) if os.path.exists('/usr/bin/man') else None
    assert r is None or r.stderr == b''


# ---- tokenize ----

def test_tokenize(model, tmp_path):
    r = leat_json('tokenize', model, '-p', 'hello world')
    assert list(r) == ['ids', 'pieces'] and len(r['ids']) == len(r['pieces']) and r['ids'][0] == 1
    ids = ' '.join(map(str, r['ids']))
    back = leat_json('tokenize', model, '-p', ids, '--decode')
    assert back['text'] == 'hello world' and back['ids'] == r['ids']
    assert leat('tokenize', model, '-p', ids, '--decode', check=0).stdout == 'hello world'
    assert leat('tokenize', model, '-p', ' %s\n' % r['ids'], '--decode', check=0).stdout == 'hello world'
    for wrong in ('[1', '1]', '[1] 2', '[[1]]'):
        assert error_of('tokenize', model, '-p', wrong, '--decode', status=2)['code'] == 'usage'
    assert leat_json('tokenize', model, '-p', 'hello world', '--no-bos')['ids'] == r['ids'][1:]
    assert 2 in leat_json('tokenize', model, '-p', '</s>', '--special')['ids']
    assert 2 not in leat_json('tokenize', model, '-p', '</s>')['ids']
    assert leat_json('tokenize', model, '-p', '', '--no-bos')['ids'] == []
    assert leat_json('tokenize', model, '-p', '', '--decode')['text'] == ''
    plain = leat('tokenize', model, '-p', 'hello', check=0).stdout.split('\n')
    assert plain[0].split() == ['1', '<s>']
    assert error_of('tokenize', model, '-p', '1 99999', '--decode', status=2)['code'] == 'usage'
    assert error_of('tokenize', model, status=2)['code'] == 'usage'


def test_tokenizer_sources(make_model):
    hf = make_model('tiny-llama', safetensors=True)
    want = leat_json('tokenize', make_model('tiny-llama'), '-p', 'hello world')['ids']
    for source in (hf, os.path.join(hf, 'tokenizer.json'), os.path.join(hf, 'config.json'), os.path.join(hf, 'model.safetensors')):
        assert leat_json('tokenize', source, '-p', 'hello world')['ids'] == want, source
    first = make_model('tiny-llama', '--split', '3')
    for shard in ('00001', '00002', '00003'):
        assert leat_json('tokenize', first.replace('00001-of', shard + '-of'), '-p', 'hello world')['ids'] == want
    vocab = data_path('vocab-gguf', 'ggml-vocab-llama-spm.gguf')
    assert len(leat_json('tokenize', vocab, '-p', 'hello')['ids']) == 2


# ---- eval ----

def test_eval(model, tmp_path):
    ids = [1] + [3 + i * 7 % 500 for i in range(60)]
    out = tmp_path / 'logits.bin'
    r = leat_json('eval', model, '--tokens', ' '.join(map(str, ids)), '--logits', out)
    rows = np.fromfile(out, dtype='<f4').reshape(len(ids), r['logits_width']).astype(np.float64)
    m = rows.max(axis=1, keepdims=True)
    logp = rows - m - np.log(np.exp(rows - m).sum(axis=1, keepdims=True))
    nll = -logp[np.arange(len(ids) - 1), ids[1:]]
    assert math.isclose(r['perplexity'], math.exp(nll.mean()), rel_tol=1e-6)
    assert r['n_tokens'] == len(ids) and os.listdir(tmp_path) == ['logits.bin']
    narrow = tmp_path / 'narrow.bin'
    leat('eval', model, '--tokens', ' '.join(map(str, ids)), '--logits', narrow, '-b', '1', check=0)
    assert narrow.read_bytes() == out.read_bytes()
    f = tmp_path / 'text'
    f.write_text('hello world, hello world')
    by_text = leat_json('eval', model, '-f', f)
    by_ids = leat_json('eval', model, '--tokens', ' '.join(map(str, leat_json('tokenize', model, '-f', f)['ids'])))
    assert by_text['perplexity'] == by_ids['perplexity']
    assert 'perplexity' in leat('eval', model, '-f', f, check=0).stdout
    assert leat('eval', model, '--tokens', '1 5', check=0).stdout.endswith(' over 1 token\n')
    assert leat_json('eval', model, '--tokens', '5')['perplexity'] is None


def test_eval_failures_leave_nothing(model, tmp_path):
    out = tmp_path / 'logits.bin'
    out.write_bytes(b'old')
    assert error_of('eval', model, '--tokens', '1 2 999999', '--logits', out, status=2)['code'] == 'usage'
    assert error_of('eval', model, '--tokens', '1 2 3', '-c', '2', '--logits', out, status=1)['code'] == 'context'
    assert error_of('eval', model, '--tokens', '1 2 3', '--logits', tmp_path / 'no' / 'where', status=1)['code'] == 'file'
    assert error_of('eval', model, '--tokens', '', status=2)['code'] == 'usage'
    assert error_of('eval', model, status=2)['code'] == 'usage'
    assert error_of('eval', model, '--tokens', '1', '--temp', '0', status=2)['code'] == 'usage'  # nothing is sampled here
    assert out.read_bytes() == b'old' and os.listdir(tmp_path) == ['logits.bin']


def test_eval_without_a_tokenizer(make_model, tmp_path):
    hf = make_model('tiny-llama', safetensors=True)
    bare = tmp_path / 'bare'
    bare.mkdir()
    for name in ('config.json', 'model.safetensors'):
        os.symlink(os.path.join(hf, name), bare / name)
    a = leat_json('eval', bare, '--tokens', '1 5 9 5')
    assert a['perplexity'] == leat_json('eval', hf, '--tokens', '1 5 9 5')['perplexity']
    assert 'tokenizer' in error_of('run', bare, '-p', 'x', status=1)['message']
    assert len(leat_json('run', bare, '--tokens', '1 5', '-n', 4)['tokens']) == 4


# ---- inspect ----

def test_inspect(model, moe):
    r = leat_json('inspect', model)
    assert r['runs'] and r['lacks'] == [] and r['arch'] == 'llama' and len(r['tensors']) > 10
    assert sum(g['bytes'] for g in r['groups']) == r['total_bytes'] == sum(t['bytes'] for t in r['tensors'])
    assert leat_json('inspect', moe)['units']['token_cycle_bytes'] > 0
    text = leat('inspect', model, check=0).stdout
    assert 'bytes per token' in text and 'largest' in text and 'blk.0.attn_q' not in text.split('metadata')[1]
    assert 'blk.0.attn_q' in leat('inspect', model, '--tensors', check=0).stdout.split('metadata')[1]
    vocab = data_path('vocab-gguf', 'ggml-vocab-gpt-2.gguf')
    r = leat_json('inspect', vocab)
    assert not r['runs'] and r['lacks']


def test_params_lists_keys_bounds_and_defaults():
    lines = leat('params', check=0).stdout.splitlines()
    rows = {l.split()[0]: l for l in lines if l and not l.startswith(' ')}
    assert 'f32 f16 q8_0 q4_0' in rows['kv_type'] and '--kv-type' in rows['kv_type'] and '[f16]' in rows['kv_type']
    assert 'sessions' in rows and '1 to 1024' in rows['sessions'] and '[1]' in rows['sessions']
    assert max(map(len, lines)) <= 80
