"""leat tokenize over real vocabularies: the cases of ../shared/data through the program, text in and out as bytes."""
import gzip, json, os
import pytest
from conftest import DATA, ROOT, data_path, leat, leat_json

DEFAULT_MODEL = os.environ.get('LEAT_TEST_MODEL') or os.path.join(
    os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'leat', 'models', 'gemma-3-270m-Q4_K_M.gguf')


@pytest.fixture(scope='module')
def unpack(tmp_path_factory):
    """unpack(name) -> the path of a tokenizer.json alone; each is unpacked once."""
    made = {}

    def get(name):
        if name not in made:
            path = tmp_path_factory.mktemp(name) / 'tokenizer.json'
            with gzip.open(data_path('tokenizers', name, 'tokenizer.json.gz')) as f:
                path.write_bytes(f.read())
            made[name] = str(path)
        return made[name]
    return get


def source(name, unpack):
    if name != 'gemma3':
        return unpack(name)
    if not os.path.exists(DEFAULT_MODEL):
        pytest.skip('the default model is absent')
    return DEFAULT_MODEL


@pytest.mark.parametrize('name', ['mistral_v1', 'qwen3', 'gpt_oss', 'deepseek_v3', 'gemma3'])
def test_cases(name, unpack, tmp_path):
    """A spread of the cases; the unit test tokenizer_cases has all of them."""
    cases = json.load(open(data_path('tokenizers', name + '.cases.json'), encoding='utf-8'))
    path = source(name, unpack)
    text = tmp_path / 'text'
    for case in cases['cases'][3::17]:
        text.write_bytes(case['text'].encode())
        assert leat_json('tokenize', path, '-f', text, '--special', '--no-bos')['ids'] == case['ids'], case['text']
    for case in cases['invalid_utf8'][5::8]:
        text.write_bytes(bytes.fromhex(case['bytes_hex']))
        assert leat_json('tokenize', path, '-f', text, '--special', '--no-bos')['ids'] == case['ids'], case['bytes_hex']
    example = cases['example_with_special_tokens']
    assert leat_json('tokenize', path, '-p', example['text'], '--special')['ids'] == example['ids']


@pytest.mark.parametrize('name', ['falcon', 'gpt-2', 'llama-spm', 'phi-3', 'starcoder', 'deepseek-llm'])
def test_vocabulary_only(name, tmp_path):
    path = data_path('vocab-gguf', 'ggml-vocab-%s.gguf' % name)
    texts = open(path + '.inp', 'rb').read().split(b'\n__ggml_vocab_test__\n')[:46]
    wanted = [[int(x) for x in line.split()] for line in open(path + '.out')]
    assert len(texts) == len(wanted) == 46
    text = tmp_path / 'text'
    for i in range(0, 46, 11):
        text.write_bytes(texts[i])
        assert leat_json('tokenize', path, '-f', text, '--special', '--no-bos')['ids'] == wanted[i], texts[i]


def test_bert_is_refused_by_name():
    r = leat('tokenize', data_path('vocab-gguf', 'ggml-vocab-bert-bge.gguf'), '-p', 'x', check=1)
    assert 'WordPiece tokenizers (BERT) are not supported yet' in r.stderr


def test_golden_alone():
    """Needs no test data: a small tokenizer.json of the repository, special tokens as text and as tokens."""
    golden = os.path.join(ROOT, 'tests', 'golden', 'tokenizers')
    cases = json.load(open(os.path.join(golden, 'cases.json'), encoding='utf-8'))
    chosen = [c for c in cases if 'plain_ids' in c][:8]
    assert len(chosen) == 8
    for case in chosen:
        path = os.path.join(golden, case['tokenizer'] + '.json')
        for flags, ids in ((['--special'], case['ids']), ([], case['plain_ids'])):
            assert leat_json('tokenize', path, '-p', case['text'], '--no-bos', *flags)['ids'] == ids, case
