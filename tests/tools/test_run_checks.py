"""tools/run-checks on a made-up project: it counts right, and cannot be satisfied by tests that fail or do not run."""
import os
import shutil
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

MESON = '''project('made-up', 'c', default_options: ['warning_level=2'])
foreach name : ['good', %s]
  test(name, executable(name, 'src/base/' + name + '.c'))
endforeach
'''
GOOD = {
    'meson.build': MESON % "'skips'",
    'src/base/good.c': 'int main(void)\n{\n    return 0;\n}\n',
    'src/base/skips.c': '#include <stdio.h>\nint main(void)\n{\n    puts("no data here");\n    return 77;\n}\n',
    'src/base/bad.c': 'int main(void)\n{\n    return 1;\n}\n',
    'src/base/overruns.c': '#include <stdlib.h>\nint main(void)\n{\n    volatile char *p = malloc(4);\n'
                           '    volatile int n = 4;\n    p[n] = 1;\n    return 0;\n}\n',
    'tests/tools/test_a.py': 'def test_a():\n    pass\n',
    'tests/gates/test_b.py': 'import pytest\n\ndef test_b():\n    pass\n\ndef test_c():\n    pytest.skip("not here")\n',
    'tests/e2e/test_d.py': 'import pytest\n\n@pytest.mark.parametrize("x", [1, 2])\ndef test_d(x):\n    pass\n',
}


def run(tmp_path, changes, *only):
    for path, text in {**GOOD, **changes}.items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (tmp_path / 'tools').mkdir(exist_ok=True)
    for tool in ('run-checks', 'check-floors'):
        shutil.copy(os.path.join(ROOT, 'tools', tool), tmp_path / 'tools')
    env = {k: v for k, v in os.environ.items() if not k.startswith(('MESON', 'PYTEST', 'CFLAGS'))}
    r = subprocess.run([sys.executable, str(tmp_path / 'tools' / 'run-checks')]
                       + [w for suite in only for w in ('--only', suite)],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    return r.returncode, r.stdout


def test_all_is_well(tmp_path):
    status, out = run(tmp_path, {})
    assert status == 0, out
    # build, warnings, floors, unit 1 (+1 skipped), asan build, asan unit 1 (+1), tools 1, gates 1 (+1), e2e 2
    assert out.split('\n')[-2] == '10 passed, 0 failed, 3 skipped', out
    assert 'skipped: skips: no data here' in out
    assert 'skipped: not here (1 tests)' in out


FAULTS = {
    'a unit test fails': ({'meson.build': MESON % "'bad'"}, ('build', 'unit'), 'FAILED: bad'),
    'only the sanitizer sees it': ({'meson.build': MESON % "'overruns'"},
                                   ('build', 'unit', 'asan build', 'asan unit'), 'FAILED: overruns'),
    'it does not build': ({'src/base/good.c': 'int main(void) { return x; }\n'}, ('build',), 'undeclared'),
    'a warning': ({'src/base/good.c': 'int main(void)\n{\n    int x;\n    return 0;\n}\n'},
                  ('build', 'warnings'), 'unused'),
    'an upward include': ({'src/io/a.h': '', 'src/base/b.h': '#include "../io/a.h"\n'}, ('floors',), 'floor 1'),
    'a pytest fails': ({'tests/e2e/test_d.py': 'def test_d():\n    assert 1 == 2\n'}, ('e2e',), 'FAILED: tests.e2e.test_d'),
    'a pytest file is broken': ({'tests/e2e/test_e.py': 'import nothing_of_this_name\n'}, ('e2e',), 'FAILED'),
    'no test': ({'tests/e2e/test_d.py': ''}, ('e2e',), 'ran nothing'),
    'all skipped': ({'tests/e2e/test_d.py': 'import pytest\n\ndef test_d():\n    pytest.skip("x")\n'}, ('e2e',), 'ran nothing'),
    'no such suite': ({}, ('nonsense',), '0 passed, 1 failed'),
}


@pytest.mark.parametrize('fault', list(FAULTS))
def test_a_fault_fails(fault, tmp_path):
    changes, only, said = FAULTS[fault]
    status, out = run(tmp_path, changes, *only)
    assert status == 1, out
    assert said in out
    last = out.split('\n')[-2]
    assert ' 0 failed' not in last and last.endswith('skipped'), out
