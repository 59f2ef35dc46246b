"""tools/check-floors on made-up trees: a good one passes, and each kind of fault is found in its line."""
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOL = os.path.join(ROOT, 'tools', 'check-floors')

GOOD = {
    'include/leat.h': '#include "leat_error.h"\n',
    'include/leat_error.h': '',
    'src/base/error.h': '#include "../../include/leat_error.h"\n',
    'src/base/error.c': '#include "error.h"\n#include <stdio.h>\n',
    'src/io/file.h': '#include "../base/error.h"\n',
    'src/model/model.h': '#include "../io/file.h"\n',
    'src/text/tokenizer.h': '#include "../model/model.h"\n',
    'src/api/engine.c': '#include "leat.h"\n#include "../model/model.h"\n',
    'src/cli/main.c': '#include "leat.h"\n#include "../base/error.h"\n#include "render.h"\n',
    'src/cli/render.h': '/* #include "../model/model.h" */\n// see ../model/model.h\n',
    'src/cli/meson.build': '',
    'src/api/meson.build': '',
    'tests/unit/test_x.c': '#include "../../src/model/model.h"\n',
}

FAULTS = {
    'upward': ({'src/io/lane.c': '#include "../weights/weights.h"\n', 'src/weights/weights.h': ''},
               'src/io/lane.c:1: includes "../weights/weights.h": weights/ is on floor 3, io/ on floor 1'),
    'cli past leat.h': ({'src/cli/run.c': '\n#include "../model/model.h"\n'},
                        'src/cli/run.c:2: includes "../model/model.h": cli/ sees'),
    'serve past leat.h': ({'src/serve/http.c': '#include "../api/engine.h"\n', 'src/api/engine.h': ''},
                          'src/serve/http.c:1:'),
    'serve into cli': ({'src/serve/http.c': '#include "../cli/render.h"\n'}, 'serve/ sees'),
    'circle': ({'src/model/names.h': '#include "../text/tokenizer.h"\n'},
               'circle: model/ includes text/ (src/model/names.h:1), text/ includes model/ (src/text/tokenizer.h:1)'),
    'leat.h from below': ({'src/model/m.c': '#include "leat.h"\n'}, 'is below the public interface'),
    'named twice': ({'src/io/error.c': ''}, 'the name error.c stands again at src/io/error.c'),
    'named like a test': ({'src/io/test_x.c': ''}, 'the name test_x.c stands again at tests/unit/test_x.c'),
    'no such file': ({'src/io/a.c': '#include "gone.h"\n'}, 'src/io/a.c:1: includes "gone.h": there is no such file'),
    'no floor': ({'src/attic/a.c': ''}, 'src/attic/ has no floor'),
    'no room': ({'src/a.c': ''}, 'src/a.c: lies in no room'),
    'out of the tree': ({'src/io/a.c': '#include "../../tests/unit/helper.h"\n', 'tests/unit/helper.h': ''},
                        'neither in a room'),
    'spaced include': ({'src/io/a.c': ' #  include  "../model/model.h"\n'}, 'src/io/a.c:1:'),
}


def run(tmp_path, files):
    for path, text in files.items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return subprocess.run([sys.executable, TOOL, str(tmp_path)], stdout=subprocess.PIPE, text=True)


def test_a_good_tree_passes(tmp_path):
    r = run(tmp_path, GOOD)
    assert r.returncode == 0, r.stdout
    assert r.stdout == 'check-floors: 8 files, 0 findings\n'


@pytest.mark.parametrize('fault', list(FAULTS))
def test_a_fault_is_found(fault, tmp_path):
    files, line = FAULTS[fault]
    r = run(tmp_path, {**GOOD, **files})
    assert r.returncode == 1
    assert line in r.stdout
    assert r.stdout.endswith(' 1 findings\n'), r.stdout  # this fault and no other


def test_an_empty_tree_fails(tmp_path):
    assert run(tmp_path, {}).returncode == 1


def test_this_tree_is_checked():
    r = subprocess.run([sys.executable, TOOL], stdout=subprocess.PIPE, text=True)
    assert int(r.stdout.split('check-floors: ')[1].split()[0]) > 30
