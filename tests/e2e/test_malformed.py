"""Every malformed kind of docs/malformed.md, and random mutations of good files: refused or accepted as that page asks, in
bounded time and memory, without a defect that the sanitizers see. Files come from tools/make-malformed; the driver is
tests/fuzz/fuzz_model.c (sanitized where that build is there), then the program itself."""
import json, os, re, shutil, subprocess, sys, time
import pytest
from conftest import DATA, LEAT, ROOT

SECONDS, MEMORY = 2.0, 64 << 20
# Files whose figure the page lets be accepted although a stricter or newer program refuses them have no verdict at all.


def program(folder_variable, name):
    folder = os.environ.get(folder_variable, '')
    path = os.path.join(os.path.dirname(folder) if folder_variable == 'LEAT_ASAN' else folder, 'tests', 'fuzz', name)
    return path if os.path.exists(path) else None


SANITIZED = program('LEAT_ASAN', 'fuzz_model')
PLAIN = program('LEAT_BUILD', 'fuzz_model')


@pytest.fixture(scope='module')
def malformed(tmp_path_factory):
    """(folder, entries of expect.json)"""
    folder = str(tmp_path_factory.mktemp('malformed'))
    good = [os.path.join(DATA, *p) for p in (('stories260K', 'stories260K-f32.gguf'),
                                             ('stories260K', 'hf', 'tokenizer.json'))]
    subprocess.run([sys.executable, os.path.join(ROOT, 'tools', 'make-malformed'), folder, '--mutations', '500'] +
                   [p for p in good if os.path.exists(p)], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, 'expect.json')) as f:
        entries = json.load(f)
    assert len({e['kind'] for e in entries} - {'good', 'mutation'}) == 44 + 27 + 5
    assert sum(e['kind'] == 'mutation' for e in entries) == 500
    yield folder, entries
    shutil.rmtree(folder)


def outcomes(text):
    """{path: {'inspect': (code, message), ...}} from the driver's lines."""
    result, current = {}, None
    for line in text.split('\n'):
        fields = line.split('\t')
        if fields[0] == 'path':
            current = result.setdefault(fields[1], {})
        elif len(fields) == 3:
            current[fields[0]] = (int(fields[1]), fields[2])
    return result


def drive(driver, folder, entries):
    """One process for all files; on a crash the file that it was at is named."""
    names = '\n'.join(e['file'] for e in entries) + '\n'
    r = subprocess.run([driver, '-'], input=names.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
                       timeout=600, env=dict(os.environ, ASAN_OPTIONS='detect_leaks=1:allocator_may_return_null=0',
                                             UBSAN_OPTIONS='halt_on_error=1:print_stacktrace=1'))
    text = r.stdout.decode('utf-8', 'surrogateescape')
    last = text.rsplit('path\t', 1)[-1].split('\n')[0]
    assert r.returncode == 0, '%s: exit %d\n%s' % (last, r.returncode, r.stderr.decode('utf-8', 'replace')[-6000:])
    return outcomes(text)


def problems(entries, found):
    bad = []
    for e in entries:
        got = found.get(e['file'], {})
        said = ''
        for what in ('inspect', 'model', 'tokenizer'):
            verdict = e.get(what)
            if verdict is None:
                continue
            if what not in got:
                bad.append('%s (%s): the driver said nothing of %s' % (e['file'], e['kind'], what))
                continue
            code, message = got[what]
            said += message
            if (verdict == 'accept') != (code == 0):
                bad.append('%s (%s): %s should %s: %s' % (e['file'], e['kind'], what, verdict, got[what]))
        if e.get('word') and said and e['word'] not in said:
            bad.append('%s (%s): no word "%s" in: %s' % (e['file'], e['kind'], e['word'], said))
    return bad


def test_kinds_sanitized(malformed):
    driver = SANITIZED or PLAIN
    if not driver:
        pytest.skip('no tests/fuzz/fuzz_model was built (LEAT_ASAN, LEAT_BUILD)')
    folder, entries = malformed
    entries = [e for e in entries if e['kind'] != 'mutation']
    assert problems(entries, drive(driver, folder, entries)) == []


def test_mutations_sanitized(malformed):
    driver = SANITIZED or PLAIN
    if not driver:
        pytest.skip('no tests/fuzz/fuzz_model was built (LEAT_ASAN, LEAT_BUILD)')
    folder, entries = malformed
    entries = [e for e in entries if e['kind'] == 'mutation']
    found = drive(driver, folder, entries)
    assert len(found) == 500
    refused = sum(o['inspect'][0] != 0 for o in found.values())
    assert 50 < refused < 500, 'mutations that do not reach the parsers: %d of 500 refused' % refused


def tree_bytes(path):
    if not os.path.isdir(path):
        return os.stat(path).st_size if os.path.isfile(path) else 0
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(path) for f in files
               if os.path.isfile(os.path.join(d, f)))


# In an interpreter of its own: wait4's peak counts what stood in the parent at the fork, and this one may have grown.
LIMITED = """
import json, os, subprocess, sys, time
for line in sys.stdin:
    start = time.monotonic()
    p = subprocess.Popen(json.loads(line), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(p.pid, 0)
    print(json.dumps([os.waitstatus_to_exitcode(status), time.monotonic() - start, usage.ru_maxrss * 1024]))
"""


def limited(commands, cwd):
    """[(status, seconds, peak bytes)] of each command"""
    r = subprocess.run([sys.executable, '-S', '-E', '-c', LIMITED], cwd=cwd, check=True, stdout=subprocess.PIPE, text=True,
                       input=''.join(json.dumps(c) + '\n' for c in commands))
    return [json.loads(line) for line in r.stdout.splitlines()]


def test_time_and_memory(malformed):
    if not PLAIN:
        pytest.skip('no tests/fuzz/fuzz_model was built (LEAT_BUILD)')
    folder, entries = malformed
    entries = [e for e in entries if e['kind'] != 'mutation']
    bad = []
    found = limited([[PLAIN, e['file']] for e in entries], folder)
    assert len(found) == len(entries) > 200
    for e, (status, seconds, peak) in zip(entries, found):
        size = tree_bytes(os.path.join(folder, e['file']))
        memory = max(MEMORY, 2 * size) if size > 32 << 20 else MEMORY
        if status != 0 or seconds > SECONDS or peak > memory:
            bad.append('%s: status %d, %.2f s, %d MiB' % (e['file'], status, seconds, peak >> 20))
    assert bad == []


CONTROL = re.compile('[\x00-\x09\x0b-\x1f\x7f\udc80-\udcff]')


def test_program(malformed):
    """leat inspect: exit status 0 or 1, one printable line of error."""
    if not os.path.exists(LEAT):
        pytest.skip('no program at %s' % LEAT)
    folder, entries = malformed
    bad = []
    for e in entries:
        if 'inspect' not in e:
            continue
        start = time.monotonic()
        r = subprocess.run([LEAT, 'inspect', e['file']], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        status, output, seconds = r.returncode, r.stdout.decode('utf-8', 'surrogateescape'), time.monotonic() - start
        want = 0 if e['inspect'] == 'accept' else 1
        if status != want or CONTROL.search(output) or (want and output.count('\n') != 1) or seconds > SECONDS:
            bad.append('%s (%s): exit %d instead of %d, %.2f s: %s' % (e['file'], e['kind'], status, want, seconds, output[:300]))
    assert bad == []
