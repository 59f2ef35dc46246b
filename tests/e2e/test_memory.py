"""The budget is a hard ceiling: on what the operating system saw (VmHWM), and under a cgroup limit just above it; a refusal names a figure
that then works. Opening a model of tens of gigabytes reads headers only."""
import json, os, subprocess, sys, threading
import pytest
from conftest import LEAT, ROOT, leat, leat_json

MB = 1000 * 1000


def default_model():
    p = subprocess.run([sys.executable, os.path.join(ROOT, 'tools', 'get-default-model'), '--print-path'], stdout=subprocess.PIPE, text=True)
    path = p.stdout.strip()
    if p.returncode or not os.path.exists(path):
        pytest.skip('the default model is not here (make demo fetches it)')
    return path


def peak_of(*args):
    """JSON of a run, and VmHWM: the most that was seen from outside while it ran, or what the program read of itself at its end."""
    p = subprocess.Popen([LEAT, *map(str, args), '--json'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    seen, done = [0], threading.Event()

    def watch():  # wait4 would also count what this process held between fork and exec
        while not done.wait(0.002):
            try:
                if os.path.realpath('/proc/%d/exe' % p.pid) == os.path.realpath(LEAT):
                    seen[0] = [int(l.split()[1]) * 1024 for l in open('/proc/%d/status' % p.pid) if l.startswith('VmHWM')][0]
            except (OSError, IndexError):
                pass
    t = threading.Thread(target=watch)
    t.start()
    out, err = p.communicate()
    done.set()
    t.join()
    assert p.returncode == 0, err.decode()
    j = json.loads(out)
    return j, max(seen[0], j['stats']['memory']['rss_peak_bytes'] if 'stats' in j else 0)


PROMPT = 'Once upon a time there was a mill by the river, and the water that drove its wheel came along a'


@pytest.mark.parametrize('preset', ['small-llama', 'small-gemma3', 'small-qwen3moe'])
@pytest.mark.parametrize('share', [0.0, 0.25, 0.5, 1.0])
def test_peak_stays_under_the_budget(preset, share, make_model):
    model = make_model(preset, '--format', 'Q4_K_M')
    args = ['run', model, '-p', PROMPT, '-n', 40, '--temp', 0, '--ignore-eos', '-c', 512]
    free, peak = peak_of(*args)
    r = leat(*args, '--memory', '1M', '--json', check=1)
    least = json.loads(r.stderr)['error']['needed_bytes']
    assert least < free['stats']['memory']['planned_bytes']
    budget = int(least + (free['stats']['memory']['planned_bytes'] - least) * share)
    tight, peak = peak_of(*args, '--memory', budget)
    assert tight['tokens'] == free['tokens'] and tight['text'] == free['text']
    assert peak <= budget, 'peak %d over the budget %d' % (peak, budget)
    # the process itself differs by some pages from run to run, hence the step
    assert leat(*args, '--memory', least - 2 * MB, '--json').returncode == 1


def test_default_model_at_half_its_size():
    model = default_model()
    budget = os.path.getsize(model) // 2
    args = ['run', model, '-p', PROMPT, '-n', 24, '--temp', 0, '--ignore-eos']
    free, _ = peak_of(*args)
    tight, peak = peak_of(*args, '--memory', budget)
    assert tight['tokens'] == free['tokens'] and tight['text'] == free['text']
    assert peak <= budget, 'peak %d over the budget %d' % (peak, budget)
    assert tight['stats']['stream_read_bytes'] > 0


def cgroup_with_limit(limit):
    """A new memory cgroup, v2 or v1, or a skip. Gives its folder."""
    name = 'leat_test_%d' % os.getpid()
    for base, knob in (('/sys/fs/cgroup/memory', 'memory.limit_in_bytes'), ('/sys/fs/cgroup', 'memory.max')):
        d = os.path.join(base, name)
        try:
            os.mkdir(d)
        except OSError:
            continue
        try:
            with open(os.path.join(d, knob), 'w') as f: f.write(str(limit))
            return d
        except OSError:
            os.rmdir(d)
    pytest.skip('no memory cgroup can be made here')


@pytest.mark.parametrize('preset', ['small-llama', 'small-qwen3moe', None])
def test_a_cgroup_just_above_the_budget_does_not_kill(preset, make_model):
    model = make_model(preset, '--format', 'Q4_K_M') if preset else default_model()
    args = ['run', model, '-p', PROMPT, '-n', '24', '--temp', '0', '--ignore-eos', '--json', '-c', '512']
    if preset:
        budget = json.loads(leat(*args, '--memory', '1M', check=1).stderr)['error']['needed_bytes'] + 2 * MB
    else:
        budget = os.path.getsize(model) // 2
    free = json.loads(leat(*args, check=0).stdout)
    d = cgroup_with_limit(int(budget * 1.05))
    try:
        r = subprocess.run(['sh', '-c', 'echo $$ > %s/cgroup.procs && exec "$@"' % d, 'sh', LEAT, *args, '--memory', str(budget)],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    finally:
        os.rmdir(d)
    assert r.returncode == 0, (r.returncode, r.stderr.decode())
    assert json.loads(r.stdout)['tokens'] == free['tokens']


def test_inspect_of_a_huge_model_reads_headers_only(tmp_path):
    model = str(tmp_path / 'huge.gguf')
    subprocess.run([sys.executable, os.path.join(ROOT, 'tools', 'make-model'), 'llama-70b', model, '--format', 'Q8_0', '--sparse'],
                   check=True, stdout=subprocess.DEVNULL)
    assert os.path.getsize(model) > 60e9
    report, peak = peak_of('inspect', model)
    assert peak < 100 * MB
    assert report
