"""What lies in the page cache is read from there; what does not is not put there."""
import ctypes
import mmap
import os
import shutil

import pytest

from conftest import leat_json

LIBC = ctypes.CDLL(None, use_errno=True)


def cached_bytes(path):
    """By mincore, which tells the truth to a file's owner."""
    size = os.path.getsize(path)
    pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    with open(path, 'r+b') as f:
        m = mmap.mmap(f.fileno(), size)
        here = (ctypes.c_char * size).from_buffer(m)
        vec = (ctypes.c_ubyte * pages)()
        rc = LIBC.mincore(ctypes.c_void_p(ctypes.addressof(here)), ctypes.c_size_t(size), vec)
        del here
        m.close()
    if rc != 0:
        pytest.skip('this system does not say what is cached')
    return sum(v & 1 for v in vec) * mmap.PAGESIZE


def drop(path):
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


ARGS = ['-p', 'the water', '-n', '4', '--temp', '0', '--ignore-eos']


@pytest.fixture(scope='module')
def model(make_model, tmp_path_factory):
    path = str(tmp_path_factory.mktemp('cache') / 'model.gguf')  # its own file: nobody else warms it
    shutil.copyfile(make_model('small-llama', '--format', 'Q8_0'), path)
    return path


def test_cold_file_stays_cold(model):
    drop(model)
    if cached_bytes(model) > 0:
        pytest.skip('this file system keeps its cache')
    got = leat_json('run', model, *ARGS)
    if got['stats']['buffered_files']:
        pytest.skip('direct reads do not work here')
    assert got['stats']['page_cache_read_bytes'] == 0
    assert got['stats']['read_bytes'] > 1 << 20
    assert cached_bytes(model) < 1 << 16


def test_warm_file_is_read_from_there(model):
    cold = leat_json('run', model, *ARGS)
    with open(model, 'rb') as f:
        while f.read(1 << 20):
            pass
    warm = leat_json('run', model, *ARGS)
    assert warm['stats']['page_cache_read_bytes'] > 1 << 20
    assert warm['tokens'] == cold['tokens']
    direct = leat_json('run', model, *ARGS, '--direct', 'on')
    assert direct['stats']['page_cache_read_bytes'] == 0
    assert direct['tokens'] == cold['tokens']
