"""Shared by the end-to-end tests: where the program is, where the test data is, models made on the way."""
import json, os, subprocess, sys
import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LEAT = os.environ.get('LEAT', os.path.join(ROOT, 'build', 'leat'))
DATA = os.environ.get('LEAT_TEST_DATA', os.path.join(ROOT, '..', 'shared', 'data'))


def leat(*args, check=None, timeout=120, **kw):
    """Runs the program; check=0 asserts the exit status. Gives CompletedProcess with text output."""
    kw.setdefault('stdin', subprocess.DEVNULL)
    r = subprocess.run([LEAT, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, **kw)
    r.stdout, r.stderr = r.stdout.decode('utf-8', 'surrogateescape'), r.stderr.decode('utf-8', 'surrogateescape')
    if check is not None:
        assert r.returncode == check, 'exit %d: %s%s' % (r.returncode, r.stderr[-2000:], r.stdout[-500:])
    return r


def leat_json(*args, **kw):
    return json.loads(leat(*args, '--json', check=0, **kw).stdout)


def data_path(*parts):
    """A path in the shared test data; skips the test where that folder is absent."""
    p = os.path.join(DATA, *parts)
    if not os.path.exists(p):
        pytest.skip('no test data at ../shared/data (%s)' % os.path.join(*parts))
    return p


@pytest.fixture(scope='session')
def make_model(tmp_path_factory):
    """make_model(preset, *args, safetensors=False) -> path; each is made once."""
    made = {}

    def make(*args, safetensors=False):
        key = (args, safetensors)
        if key not in made:
            d = tmp_path_factory.mktemp('model')
            out = str(d / 'hf') if safetensors else str(d / (args[0] + '.gguf'))
            cmd = [sys.executable, os.path.join(ROOT, 'tools', 'make-model'), args[0], out, *args[1:]]
            r = subprocess.run(cmd + (['--safetensors'] if safetensors else []), stdout=subprocess.PIPE, check=True, text=True)
            made[key] = out if safetensors else r.stdout.split('\n')[0]
        return made[key]
    return make
