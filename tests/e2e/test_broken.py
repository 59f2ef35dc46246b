"""Broken surroundings, odd files and odd limits: each case is something that once went wrong, or a near neighbour of it."""
import json, os, resource, shutil, signal, stat, subprocess, threading
import pytest
from conftest import LEAT, leat, leat_json

GREEDY = ['--temp', '0', '--ignore-eos']


@pytest.fixture(scope='module')
def model(make_model):
    return make_model('tiny-llama')


@pytest.fixture(scope='module')
def moe(make_model):
    return make_model('tiny-qwen3moe')


@pytest.fixture
def folder(make_model, tmp_path):
    """A folder of its own, to be spoiled."""
    d = tmp_path / 'hf'
    shutil.copytree(make_model('tiny-qwen2', safetensors=True), d)
    return d


@pytest.fixture(autouse=True)
def no_config(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'config'))


def error_of(*args, status=1, **kw):
    r = leat(*args, '--json', check=status, **kw)
    assert r.stdout == ''
    e = json.loads(r.stderr)
    assert list(e) == ['error']
    return e['error']


def limited(which, value):
    return lambda: resource.setrlimit(which, (value, value))


# ---- the logits file ----

ROW = 512 * 4  # bytes of one row of logits


def test_logits_go_into_a_pipe_and_leave_it_there(model, tmp_path):
    pipe, got = tmp_path / 'pipe', []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(open(pipe, 'rb').read()), daemon=True)
    reader.start()
    leat('eval', model, '--tokens', '1 2 3', '--logits', pipe, check=0)
    assert stat.S_ISFIFO(os.lstat(pipe).st_mode)  # was replaced by a file; /dev/null too
    reader.join(60)
    assert [len(g) for g in got] == [3 * ROW]


def test_logits_go_through_a_link(model, tmp_path):
    leat('eval', model, '--tokens', '1 2 3', '--logits', tmp_path / 'plain', check=0)
    want = (tmp_path / 'plain').read_bytes()
    (tmp_path / 'target').write_bytes(b'old' * 10000)
    os.symlink('target', tmp_path / 'link')
    os.symlink('new', tmp_path / 'dead')
    for link, target in (('link', 'target'), ('dead', 'new')):
        leat('eval', model, '--tokens', '1 2 3', '--logits', tmp_path / link, check=0)
        assert os.path.islink(tmp_path / link) and (tmp_path / target).read_bytes() == want


def test_logits_with_the_longest_name(model, tmp_path):
    leat('eval', model, '--tokens', '1 2 3', '--logits', tmp_path / ('x' * 255), check=0)
    assert os.listdir(tmp_path) == ['x' * 255]
    leat('eval', model, '--tokens', '1 2 3', '--logits', 'y' * 255, check=0, cwd=tmp_path)
    assert os.path.getsize(tmp_path / ('y' * 255)) == 3 * ROW


def test_logits_need_a_name(model, tmp_path):
    assert error_of('eval', model, '--tokens', '1', '--logits', '', status=2)['code'] == 'usage'
    assert error_of('eval', model, '--tokens', '1', '--logits', str(tmp_path) + '/', status=2)['code'] == 'usage'
    assert error_of('eval', model, '--tokens', '1', '--logits', tmp_path)['code'] == 'file'
    assert os.listdir(tmp_path) == []


def test_a_file_size_limit_is_an_error(model, tmp_path):
    e = error_of('eval', model, '--tokens', ' '.join(['5'] * 40), '--logits', tmp_path / 'l', preexec_fn=limited(resource.RLIMIT_FSIZE, 4096))
    assert e['code'] == 'file' and 'too large' in e['message']
    assert os.listdir(tmp_path) == []
    os.symlink('target', tmp_path / 'link')
    error_of('eval', model, '--tokens', ' '.join(['5'] * 40), '--logits', tmp_path / 'link', preexec_fn=limited(resource.RLIMIT_FSIZE, 4096))
    assert (tmp_path / 'target').read_bytes() == b''  # half of it would read like a shorter one


# ---- standard streams ----

@pytest.mark.parametrize('closed', ['<&-', '>&-', '2>&-', '<&- >&-', '<&- >&- 2>&-'])
def test_closed_streams_do_not_become_the_logits(closed, model, tmp_path):
    args = [LEAT, 'eval', model, '--tokens', '1 2 3', '--json', '--logits', str(tmp_path / 'l')]
    r = subprocess.run(['sh', '-c', '"$@" ' + closed, 'sh', *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    assert r.returncode == (1 if '>&- ' in closed + ' ' and closed != '2>&-' else 0), r.stderr
    assert os.path.getsize(tmp_path / 'l') == 3 * ROW


# ---- texts that never end, or never begin ----

@pytest.mark.parametrize('command', ['run', 'eval', 'tokenize'])
def test_an_endless_text_is_refused(command, model):
    if not os.path.exists('/dev/zero'):
        pytest.skip('there is no /dev/zero')
    e = error_of(command, model, '-f', '/dev/zero', timeout=60)
    assert e['code'] == 'file' and '256 MiB' in e['message']


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_waiting_for_a_text(number, model, tmp_path):
    """Often, because the signal has to fall between two system calls to be slept through."""
    pipe = tmp_path / 'pipe'
    os.mkfifo(pipe)
    for i in range(50):
        p = subprocess.Popen([LEAT, 'run', model, '-f', str(pipe), '--json'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with open(pipe, 'wb') as f:  # returns when the program has opened its end
            if i % 2:
                f.write(b'half')
                f.flush()
            p.send_signal(number)
            out, err = p.communicate(timeout=60)
        assert p.returncode == 1 and out == b'' and json.loads(err)['error']['code'] == 'cancelled'


def test_a_text_that_comes_late_through_a_pipe(model, tmp_path):
    pipe = tmp_path / 'pipe'
    os.mkfifo(pipe)
    p = subprocess.Popen([LEAT, 'tokenize', model, '-f', str(pipe), '--json'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with open(pipe, 'wb') as f:
        for _ in range(3):
            f.write(b'hello ' * 20000)
            f.flush()
    out, err = p.communicate(timeout=60)
    (tmp_path / 'text').write_bytes(b'hello ' * 60000)
    assert json.loads(out)['ids'] == leat_json('tokenize', model, '-f', tmp_path / 'text')['ids']
    assert leat_json('tokenize', model, '-f', '-', stdin=open(tmp_path / 'text'))['ids'] == json.loads(out)['ids']


# ---- limits of the system ----

def test_a_small_stack_is_enough(moe):
    want = leat_json('run', moe, '-p', 'hello', '-n', 4, *GREEDY)['tokens']
    small = leat_json('run', moe, '-p', 'hello', '-n', 4, *GREEDY, '-t', 2, preexec_fn=limited(resource.RLIMIT_STACK, 64 << 10))
    assert small['tokens'] == want


def test_refused_memory_names_its_row_once(make_model):
    m = make_model('small-qwen3moe', '--format', 'Q4_0')
    seen = 0
    for mib in (24, 40, 60, 80):
        r = leat('run', m, '-p', 'hello', '-n', 1, '--memory', '200M', '-t', 1, '--json', preexec_fn=limited(resource.RLIMIT_AS, mib << 20))
        if r.returncode == 1 and 'system refused' in r.stderr:
            seen += 1
            message = json.loads(r.stderr)['error']['message']
            assert ': :' not in message and message.count(':') == 1, message
    assert seen or 'asan' in LEAT or b'asan' in subprocess.run(['ldd', LEAT], stdout=subprocess.PIPE).stdout


# ---- folders ----

@pytest.mark.parametrize('name', ['tokenizer.json', 'tokenizer_config.json', 'generation_config.json', 'config.json'])
def test_a_file_not_yet_downloaded_is_not_an_absent_one(name, folder):
    os.remove(folder / name)
    os.symlink('../../blobs/0123', folder / name)
    for command in ('run', 'tokenize'):
        e = error_of(command, folder, '-p', 'hello')
        assert e['code'] == 'file' and name in e['message'] and 'link' in e['message'], e


def test_added_tokens_without_an_embedding_row(folder):
    """Gemma 3's text models have one: 262144 rows, and an image token with the id 262144."""
    want = leat_json('run', folder, '-p', 'hello', '-n', 8, *GREEDY)['tokens']
    f = folder / 'tokenizer.json'
    t = json.loads(f.read_text())
    rows = json.loads((folder / 'config.json').read_text())['vocab_size']
    t['added_tokens'].append({'id': rows, 'content': '<image>', 'special': True, 'normalized': False, 'lstrip': False, 'rstrip': False, 'single_word': False})
    f.write_text(json.dumps(t))
    assert leat_json('run', folder, '-p', 'hello', '-n', 8, *GREEDY)['tokens'] == want
    assert 'ids go from 0 to %d' % (rows - 1) in error_of('run', folder, '-p', 'a<image>', '--special', status=2)['message']
    t['added_tokens'].pop()
    t['model']['vocab']['surplus'] = rows
    f.write_text(json.dumps(t))
    assert 'embedding table' in error_of('run', folder, '-p', 'hello')['message']


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(model, tmp_path):
    (tmp_path / 'long').write_bytes(b'a' * 40_000_000)
    r = leat('run', model, '-f', tmp_path / 'long', '-n', '1', '-c', '64', '--json', check=1)
    e = json.loads(r.stderr)['error']
    assert e['code'] == 'context' and '40000000 bytes' in e['message']
