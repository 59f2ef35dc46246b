#!/usr/bin/env python3
"""What model_open makes of every architecture, container and layout, against this file's own reading of the same headers.

    check_models.py MODEL_FACTS SOURCE_ROOT

Models come from tools/make-model (all seven architectures, both containers) and, where the shared data is there, from its
archcheck.py. Layouts that no tool writes (old per-expert GGUF names, stacked experts, nested configurations, prefixes) are
rewritten from those. Prints one line per check; exit status 1 when one failed, 77 when numpy is missing.
"""
import json, os, shutil, struct, subprocess, sys, tempfile

FACTS, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
DATA = os.environ.get('LEAT_TEST_DATA', os.path.join(ROOT, '..', 'shared', 'data'))
PYTHON = next((p for p in (sys.executable, '/usr/bin/python3')
               if subprocess.run([p, '-c', 'import numpy'], stderr=subprocess.DEVNULL).returncode == 0), None)
if not PYTHON:
    print('no numpy: install python3-numpy')
    sys.exit(77)
TMP = tempfile.mkdtemp(prefix='check-models-', dir='.')
failed = []


def check(ok, what, detail=''):
    if not ok:
        failed.append(what)
        print('FAILED: %s %s' % (what, str(detail)[:1500]))


# ---- an independent reading of headers: {name: (file, format id, dims innermost first, offset, bytes)}

BLOCK = {0: (1, 4), 1: (1, 2), 30: (1, 2), 2: (32, 18), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144), 13: (256, 176),
         14: (256, 210), 39: (32, 17), 20: (32, 18), 23: (256, 136)}
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def read_gguf(path):
    b = open(path, 'rb').read()
    at = 24
    tensors, keys = struct.unpack_from('<QQ', b, 8)

    def number(fmt):
        nonlocal at
        v = struct.unpack_from('<' + fmt, b, at)[0]
        at += struct.calcsize(fmt)
        return v

    def text():
        nonlocal at
        n = number('Q')
        at += n
        return b[at - n:at].decode()

    def skip(kind):
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            elem, n = number('I'), number('Q')
            for _ in range(n) if elem == 8 else ():
                text()
            at += 0 if elem == 8 else n * SIZES[elem]
        else:
            at += SIZES[kind]

    for _ in range(keys):
        text()
        skip(number('I'))
    head = at
    infos = []
    for _ in range(tensors):
        name = text()
        dims = [number('Q') for _ in range(number('I'))]
        infos.append((name, dims, number('I'), number('Q')))
    start = -(-at // 32) * 32
    out = {}
    for name, dims, kind, offset in infos:
        n = 1
        for d in dims:
            n *= d
        out[name] = (0, kind, dims, start + offset, n // BLOCK[kind][0] * BLOCK[kind][1])
    return out, b, head


def read_safetensors(path):
    b = open(path, 'rb').read()
    n = struct.unpack_from('<Q', b)[0]
    kinds = {'F32': 0, 'F16': 1, 'BF16': 30}
    return {k: (0, kinds[v['dtype']], v['shape'][::-1], 8 + n + v['data_offsets'][0], v['data_offsets'][1] - v['data_offsets'][0])
            for k, v in json.loads(b[8:8 + n]).items() if k != '__metadata__'}, b


# ---- running

def run(path, *flags):
    r = subprocess.run([FACTS, *flags, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return json.loads(r.stdout) if r.returncode == 0 else r.stderr


def make(preset, out, *args):
    path = os.path.join(TMP, out)
    subprocess.run([PYTHON, os.path.join(ROOT, 'tools', 'make-model'), preset, path, *args], check=True, stdout=subprocess.DEVNULL)
    return path


def tensors_of(facts):
    """The tensors of all the files that the model names, file numbers as the model has them."""
    out = {}
    for i, path in enumerate(facts['files']):
        t = read_gguf(path)[0] if facts['container'] == 'gguf' else read_safetensors(path)[0]
        out.update({k: (i,) + v[1:] for k, v in t.items()})
    return out


def region(part):
    return part['file'], part['format'], part['cols'], part['rows'], part['offset']


def whole(t):
    rows = 1
    for d in t[2][1:]:
        rows *= d
    return t[0], t[1], t[2][0], rows, t[3]


GGUF = {'q': 'attn_q', 'k': 'attn_k', 'v': 'attn_v', 'o': 'attn_output', 'gate': 'ffn_gate', 'up': 'ffn_up', 'down': 'ffn_down',
        'router': 'ffn_gate_inp', 'attn_norm': 'attn_norm', 'ffn_norm': 'ffn_norm', 'post_attn_norm': 'post_attention_norm',
        'post_ffn_norm': 'post_ffw_norm', 'q_norm': 'attn_q_norm', 'k_norm': 'attn_k_norm'}
HF = {'q': 'self_attn.q_proj', 'k': 'self_attn.k_proj', 'v': 'self_attn.v_proj', 'o': 'self_attn.o_proj', 'gate': 'mlp.gate_proj',
      'up': 'mlp.up_proj', 'down': 'mlp.down_proj', 'router': 'mlp.gate', 'attn_norm': 'input_layernorm',
      'ffn_norm': 'post_attention_layernorm', 'q_norm': 'self_attn.q_norm', 'k_norm': 'self_attn.k_norm'}
HF_GEMMA = {**HF, 'post_attn_norm': 'post_attention_layernorm', 'ffn_norm': 'pre_feedforward_layernorm',
            'post_ffn_norm': 'post_feedforward_layernorm'}
ORDER = ['q', 'k', 'v', 'qkv', 'o', 'gate', 'up', 'gate_up', 'down', 'router']


def name_of(f, layer, role, arch):
    bias = role.endswith('_b')
    stem = (GGUF if f['container'] == 'gguf' else HF_GEMMA if arch == 'gemma3' else HF)[role[:-2] if bias else role]
    if arch == 'mixtral' and role == 'router' and f['container'] != 'gguf':
        stem = 'block_sparse_moe.gate'
    return ('blk.%d.%s' if f['container'] == 'gguf' else 'model.layers.%d.%s') % (layer, stem) + ('.bias' if bias else '.weight')


def expert_region(f, t, layer, x, part, arch, E, Fx):
    """Where one expert's part lies, in the layouts that make-model writes."""
    role = ('gate', 'up', 'down')[part]
    rows, cols = (E, Fx) if role == 'down' else (Fx, E)
    if f['container'] == 'gguf':
        s = t['blk.%d.ffn_%s_exps.weight' % (layer, role)]
        row = s[4] // (rows * f['n_expert'])
        return s[0], s[1], cols, rows, s[3] + x * rows * row
    names = ('w1', 'w3', 'w2') if arch == 'mixtral' else ('gate_proj', 'up_proj', 'down_proj')
    block = 'block_sparse_moe' if arch == 'mixtral' else 'mlp'
    return whole(t['model.layers.%d.%s.experts.%d.%s.weight' % (layer, block, x, names[part])])


def check_layers(f, t, arch, what):
    add = 1 if arch == 'gemma3' and f['container'] == 'safetensors' else 0
    used = set()
    for i, l in enumerate(f['layers']):
        for role, u in l['mat'].items():
            unit, name = f['units'][u], name_of(f, i, role, arch)
            used.add(name)
            check(region(unit['parts'][0]) == whole(t[name]) and unit['name'] == name and unit['layer'] == i and unit['kind'] == 0
                  and unit['scheduled'], '%s: %s of layer %d' % (what, role, i), (unit, t[name]))
        for role, v in l['vec'].items():
            vec, name = f['vectors'][v], name_of(f, i, role, arch)
            used.add(name)
            check(region(vec['part']) == whole(t[name]) and vec['add'] == (add if 'norm' in role else 0),
                  '%s: %s of layer %d' % (what, role, i), (vec, t[name]))
        if l['expert0'] >= 0:
            for x in range(f['n_expert']):
                unit = f['units'][l['expert0'] + x]
                check(unit['kind'] == 2 and unit['expert'] == x and unit['layer'] == i and not unit['scheduled'] and
                      all(region(unit['parts'][p]) == expert_region(f, t, i, x, p, arch, f['n_embd'], l['n_ff']) for p in range(3)),
                      '%s: expert %d of layer %d' % (what, x, i), unit)
    return used


def check_model(path, arch, what, layers=None):
    """Every region against the headers; the use order; nothing forgotten."""
    f = run(path)
    if isinstance(f, str):
        check(False, what + ': does not open', f)
        return None
    t = tensors_of(f)
    used = check_layers(f, t, arch, what)
    want = [l['mat'][r] for l in f['layers'] for r in ORDER if r in l['mat']] + [f['head']]
    check(f['schedule'] == want, what + ': schedule', (f['schedule'], want))
    gguf = f['container'] == 'gguf'
    table, norm = ('token_embd.weight', 'output_norm.weight') if gguf else ('model.embed_tokens.weight', 'model.norm.weight')
    head = 'output.weight' if gguf else 'lm_head.weight'
    check(region(f['units'][f['token_embd']]['parts'][0]) == whole(t[table]) and f['units'][f['token_embd']]['kind'] == 1,
          what + ': token table')
    check(region(f['units'][f['head']]['parts'][0]) == whole(t[head if head in t else table]), what + ': head')
    check((f['head'] == f['token_embd']) == (head not in t), what + ': tied')
    check(region(f['vectors'][f['output_norm']]['part']) == whole(t[norm]), what + ': output norm')
    left = [n for n in t if n not in used | {table, norm, head, 'rope_freqs.weight'} and 'exp' not in n]
    check(not left, what + ': tensors without a role', left)
    check(f['warnings'] == [], what + ': warnings', f['warnings'])
    check(f['total'] == sum(v[4] for v in t.values()), what + ': total bytes')
    return f


def close(a, b):
    return abs(a - b) <= 1e-6 * abs(b)


SPLIT_FREQ = {'llama': 500000.0, 'mistral': 1e4, 'mixtral': 1e6, 'qwen2': 1e6, 'qwen3': 1e6, 'qwen3moe': 1e6, 'gemma3': 1e6}


def architectures():
    for arch in SPLIT_FREQ:
        g = check_model(make('tiny-' + arch, arch + '.gguf'), arch, arch + ' gguf')
        h = check_model(make('tiny-' + arch, arch, '--safetensors'), arch, arch + ' safetensors')
        if not g or not h:
            continue
        check(g['arch'] == ('llama' if arch in ('mistral', 'mixtral') else arch) and h['arch'] == arch, arch + ': name')
        for key in ('n_layer', 'n_embd', 'n_vocab', 'n_ctx', 'n_head_out', 'eps', 'act', 'embd_scale', 'final_softcap', 'n_expert',
                    'n_expert_used', 'gating', 'norm_topk', 'largest', 'largest_expert', 'cycle'):
            check(g[key] == h[key], '%s: %s differs between containers' % (arch, key), (g[key], h[key]))
        for a, b in zip(g['layers'], h['layers']):
            check(all(a[k] == b[k] for k in a if k not in ('mat', 'vec', 'expert0')) and set(a['mat']) == set(b['mat']) and
                  set(a['vec']) == set(b['vec']), arch + ': layers differ between containers', (a, b))
        moe, roles = 'moe' in arch or arch == 'mixtral', set(g['layers'][0]['mat'])
        check(roles == {'q', 'k', 'v', 'o'} | ({'router'} if moe else {'gate', 'up', 'down'}), arch + ': matrices', roles)
        vecs = {'attn_norm', 'ffn_norm'}
        vecs |= {'q_b', 'k_b', 'v_b'} if arch == 'qwen2' else set()
        vecs |= {'q_norm', 'k_norm'} if arch in ('qwen3', 'qwen3moe', 'gemma3') else set()
        vecs |= {'post_attn_norm', 'post_ffn_norm'} if arch == 'gemma3' else set()
        check(set(g['layers'][0]['vec']) == vecs, arch + ': vectors', g['layers'][0]['vec'])
        check(g['ropes'][0]['half_split'] == (arch not in ('llama', 'mistral', 'mixtral')) and h['ropes'][0]['half_split'],
              arch + ': rope pairs')
        base = SPLIT_FREQ[arch] ** (-2 / g['layers'][0]['dk'])
        check(close(g['ropes'][0]['inv_freq'][1], base), arch + ': rope base', g['ropes'][0]['inv_freq'][1])
        check((g['ropes'][0]['factors'] >= 0) == (arch == 'llama') and h['ropes'][0]['factors'] < 0, arch + ': rope factors')
        check(all(l['qk_norm'] == (1 if arch in ('qwen3', 'qwen3moe', 'gemma3') else 0) for l in g['layers']), arch + ': qk norm')
        if arch == 'gemma3':
            for f in (g, h):
                check([l['window'] for l in f['layers']] == [8 if i % 6 < 5 else 0 for i in range(7)], 'gemma3: windows')
                check([l['rope'] for l in f['layers']] == [1 if i % 6 < 5 else 0 for i in range(7)], 'gemma3: ropes')
                check(close(f['ropes'][1]['inv_freq'][1], 1e4 ** (-2 / 16)) and close(f['embd_scale'], 8.0), 'gemma3: base, scale')
                check(all(close(l['scale'], 0.25) for l in f['layers']) and f['act'] == 1, 'gemma3: attention scale, activation')


def formats():
    for kind in ('F16', 'BF16'):
        check_model(make('tiny-llama', 'llama-' + kind, '--safetensors', '--format', kind), 'llama', 'llama safetensors ' + kind)
    for kind in ('Q4_K', 'Q6_K', 'Q8_0', 'MXFP4', 'IQ4_NL', 'IQ4_XS', 'Q4_K_M'):
        check_model(make('small-qwen3moe', 'moe-%s.gguf' % kind, '--format', kind, '--sparse'), 'qwen3moe', 'qwen3moe ' + kind)
    check_model(make('tiny-llama', 'v2.gguf', '--version', '2'), 'llama', 'GGUF version 2')


def splits():
    one = run(make('tiny-llama', 'one.gguf'))
    for flags in ((), ('--split-meta-first',)):
        folder = os.path.join(TMP, 'split%d' % len(flags))
        os.makedirs(folder)
        make('tiny-llama', os.path.relpath(os.path.join(folder, 'm.gguf'), TMP), '--split', '3', *flags)
        names = sorted(os.listdir(folder))
        check(len(names) == 3, 'three parts', names)
        for name in names + ['']:
            f = check_model(os.path.join(folder, name).rstrip('/'), 'llama', 'split, named by "%s" %s' % (name, flags))
            check(f and [os.path.basename(p) for p in f['files']] == names and f['total'] == one['total'], 'split: files', name)
        cache = folder + '-cache'  # links beside each other, files elsewhere
        os.makedirs(cache + '/blobs')
        os.makedirs(cache + '/snapshots/1')
        for i, name in enumerate(names):
            shutil.copy(os.path.join(folder, name), '%s/blobs/%d' % (cache, i))
            os.symlink('../../blobs/%d' % i, '%s/snapshots/1/%s' % (cache, name))
        check(isinstance(run(os.path.join(cache, 'snapshots/1', names[1])), dict), 'split, link of a cache')
        check(isinstance(run(cache), dict), 'split, the cache folder of a repository')
        os.remove('%s/blobs/2' % cache)
        text = run(os.path.join(cache, 'snapshots/1', names[0]))
        check(names[2] in text and 'not downloaded' in text, 'split: a part not downloaded', text)
        for name in names[1:]:
            os.remove(os.path.join(folder, name))
        text = run(os.path.join(folder, names[0]))
        check(all(n in text for n in names[1:]) and names[0] not in text.split('not there')[1], 'split: all missing parts', text)


# ---- rewriting: other layouts of the same weights

def write_safetensors(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    h = json.dumps(header).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(h)) + h + b''.join(t[2] for t in tensors.values()))


def load_safetensors(folder):
    t, b = read_safetensors(os.path.join(folder, 'model.safetensors'))
    return {k: ('F32', v[2][::-1], b[v[3]:v[3] + v[4]]) for k, v in t.items()}


def variant(source, name, tensors, config=None):
    folder = os.path.join(TMP, name)
    shutil.copytree(source, folder)
    write_safetensors(os.path.join(folder, 'model.safetensors'), tensors)
    if config:
        path = os.path.join(folder, 'config.json')
        with open(path) as f:
            doc = json.load(f)
        doc = config(doc) or doc
        with open(path, 'w') as f:
            json.dump(doc, f)
    return folder


def same_regions(a, b, what, rename=lambda n: n):
    """The bytes that the units point to are the same in both models."""
    if isinstance(a, str) or isinstance(b, str):
        check(False, what, a if isinstance(a, str) else b)
        return

    def contents(f):
        files = [open(p, 'rb').read() for p in f['files']]
        return [[files[p['file']][p['offset']:p['offset'] + p['bytes']] for p in u['parts']] for u in f['units']]

    check(contents(a) == contents(b), what + ': the units hold other bytes')
    check([l['mat'] for l in a['layers']] == [l['mat'] for l in b['layers']], what + ': other roles')


def layouts_hf():
    gemma = os.path.join(TMP, 'gemma3')
    plain, tensors = run(gemma), load_safetensors(os.path.join(TMP, 'gemma3'))
    tower = {'vision_tower.vision_model.embeddings.patch_embedding.weight': ('F32', [2, 3, 1, 1, 1], bytes(24))}

    def nest(doc):
        inner = {k: doc[k] for k in ('hidden_size', 'intermediate_size', 'num_hidden_layers', 'sliding_window',
                                     'num_attention_heads', 'num_key_value_heads', 'head_dim', 'query_pre_attn_scalar')}
        return {'architectures': ['Gemma3ForConditionalGeneration'], 'model_type': 'gemma3',
                'text_config': {**inner, 'model_type': 'gemma3_text', 'vocab_size': doc['vocab_size']}, 'vision_config': {}}

    for name, prefix in (('old', 'language_model.model.'), ('new', 'model.language_model.')):
        f = run(variant(gemma, 'gemma3-nested-' + name,
                        {**{prefix + k[6:]: v for k, v in tensors.items()}, **tower}, nest))
        same_regions(plain, f, 'gemma3, nested, ' + name)
        check(isinstance(f, dict) and len(f['warnings']) == 1 and 'vision' in f['warnings'][0], 'the tower is reported once',
              f if isinstance(f, str) else f['warnings'])
        check(isinstance(f, dict) and [l['window'] for l in f['layers']] == [l['window'] for l in plain['layers']], 'nested windows')

    def by_layer_type(doc):
        doc['rope_parameters'] = {'full_attention': {'rope_type': 'linear', 'factor': 8.0, 'rope_theta': 1e6},
                                  'sliding_attention': {'rope_type': 'default', 'rope_theta': 1e4}}
        for k in ('rope_theta', 'rope_local_base_freq', 'sliding_window_pattern'):
            del doc[k]

    f = run(variant(gemma, 'gemma3-v5', tensors, by_layer_type))
    check(isinstance(f, dict) and close(f['ropes'][0]['inv_freq'][0], 1 / 8) and f['ropes'][1]['inv_freq'][0] == 1 and
          close(f['ropes'][1]['inv_freq'][1], 1e4 ** (-2 / 16)), 'gemma3: rope_parameters per layer type', f)

    for arch, block, names in (('qwen3moe', 'mlp', ('gate_proj', 'up_proj', 'down_proj')),
                               ('mixtral', 'block_sparse_moe', ('w1', 'w3', 'w2'))):
        folder = os.path.join(TMP, arch)
        tensors = load_safetensors(folder)
        plain = run(folder)
        for new in sorted({block, 'mlp'}):
            stacked = {k: v for k, v in tensors.items() if '.experts.' not in k}
            for i in range(plain['n_layer']):
                old = ['model.layers.%d.%s.experts.%d.%s.weight' % (i, block, x, p) for x in range(plain['n_expert']) for p in names]
                rows, cols = tensors[old[0]][1]
                stacked['model.layers.%d.%s.experts.gate_up_proj' % (i, new)] = (
                    'F32', [plain['n_expert'], 2 * rows, cols], b''.join(tensors[n][2] for n in old if n.split('.')[-2] != names[2]))
                stacked['model.layers.%d.%s.experts.down_proj' % (i, new)] = (
                    'F32', [plain['n_expert'], cols, rows], b''.join(tensors[n][2] for n in old if n.split('.')[-2] == names[2]))
            same_regions(plain, run(variant(folder, '%s-stacked-%s' % (arch, new), stacked)), '%s, stacked, %s' % (arch, new))

    llama = os.path.join(TMP, 'llama')
    tensors = load_safetensors(llama)
    plain = run(llama)
    same_regions(plain, run(variant(llama, 'llama-bare', {k.replace('model.', '', 1) if k.startswith('model.') else k: v
                                                          for k, v in tensors.items()})), 'llama without a prefix')
    buffers = {'model.layers.0.self_attn.rotary_emb.inv_freq': ('F32', [8], bytes(32))}
    f = run(variant(llama, 'llama-buffers', {**tensors, **buffers}))
    check(isinstance(f, dict) and f['warnings'] == [], 'saved rope buffers are not reported', f)
    f = run(variant(llama, 'llama-extra', {**tensors, 'model.layers.0.extra.weight': ('F32', [8], bytes(32))}))
    check(isinstance(f, dict) and len(f['warnings']) == 1 and 'model.layers.0.extra.weight' in f['warnings'][0], 'extra tensor', f)
    rest = {k: v for k, v in tensors.items() if k != 'lm_head.weight'}
    f = run(variant(llama, 'llama-no-head', rest))
    check('lm_head.weight' in f, 'untied, but no head', f)
    f = run(variant(llama, 'llama-head-unsaid', rest, lambda d: d.pop('tie_word_embeddings') and None))
    check(isinstance(f, dict) and f['head'] == f['token_embd'], 'no head and nothing said: tied', f)
    f = run(variant(llama, 'llama-tied-with-head', tensors, lambda d: d.update(tie_word_embeddings=True)))
    check(isinstance(f, dict) and f['head'] == f['token_embd'] and f['warnings'] == [], 'tied wins over a head that is there', f)
    bias = {'model.layers.%d.self_attn.%s_proj.bias' % (i, p): ('F32', [64 if p in 'qo' else 32], bytes(256 if p in 'qo' else 128))
            for i in range(4) for p in 'qkvo'}
    f = run(variant(llama, 'llama-bias', {**tensors, **bias}, lambda d: d.update(attention_bias=True)))
    check(isinstance(f, dict) and set(f['layers'][0]['vec']) == {'attn_norm', 'ffn_norm', 'q_b', 'k_b', 'v_b', 'o_b'}, 'biases', f)
    f = run(variant(llama, 'llama-bias-missing', tensors, lambda d: d.update(attention_bias=True)))
    check('self_attn.q_proj.bias' in f, 'promised biases that are not there', f)
    f = run(variant(llama, 'llama-fp8', {**tensors, 'model.norm.weight': ('F8_E4M3', [64], bytes(64))}))
    check('F8_E4M3' in f and 'model.norm.weight' in f, 'an 8-bit type', f)
    check(f == run(os.path.join(TMP, 'llama-fp8')), 'the same message twice')

    mistral = os.path.join(TMP, 'mistral')
    tensors = load_safetensors(mistral)
    for value, windows in ((16, [16] * 4), (None, [0] * 4)):
        f = run(variant(mistral, 'mistral-window-%s' % value, tensors, lambda d: d.update(sliding_window=value)))
        check(isinstance(f, dict) and [l['window'] for l in f['layers']] == windows, 'mistral: window %s' % value, f)
    f = run(variant(mistral, 'mistral-window-default', tensors, lambda d: d.pop('sliding_window', None) and None))
    check(isinstance(f, dict) and [l['window'] for l in f['layers']] == [4096] * 4, 'mistral: the class default window', f)

    for arch, rule in (('qwen2', [0, 0, 16, 16]), ('qwen3moe', [16] * 4)):
        folder = os.path.join(TMP, arch)
        on = dict(use_sliding_window=True, sliding_window=16, max_window_layers=2)
        f = run(variant(folder, arch + '-window', load_safetensors(folder), lambda d: d.update(on)))
        check(isinstance(f, dict) and [l['window'] for l in f['layers']] == rule, arch + ': windows', f)
        f = run(variant(folder, arch + '-window-off', load_safetensors(folder), lambda d: d.update({**on, 'use_sliding_window': False})))
        check(isinstance(f, dict) and [l['window'] for l in f['layers']] == [0] * 4, arch + ': windows off', f)


def shards_hf():
    folder = make('tiny-llama', 'sharded', '--safetensors', '--split', '3')
    names = sorted(n for n in os.listdir(folder) if n.endswith('.safetensors'))
    index = 'model.safetensors.index.json'
    plain = check_model(folder, 'llama', 'sharded')
    for name in names + [index, 'config.json']:
        same_regions(plain, run(os.path.join(folder, name)), 'sharded, named by ' + name)
    other = os.path.join(TMP, 'odd-names')
    shutil.copytree(folder, other)
    os.remove(os.path.join(other, index))
    for i, name in enumerate(names):
        os.rename(os.path.join(other, name), os.path.join(other, 'part %d of mine.safetensors' % i))
    with open(os.path.join(other, 'consolidated.safetensors'), 'wb') as f:
        f.write(b'the same weights in another program\'s names')
    same_regions(plain, run(other), 'odd names, no index')
    with open(os.path.join(folder, index)) as f:
        doc = json.load(f)
    moved = sorted(doc['weight_map'])[:4]
    doc['weight_map'].update({n: names[2] if doc['weight_map'][n] != names[2] else names[0] for n in moved})
    doc['weight_map']['model.layers.9.gone.weight'] = names[0]
    del doc['weight_map']['model.norm.weight']
    with open(os.path.join(folder, index), 'w') as f:
        json.dump(doc, f)
    f = run(folder)
    same_regions(plain, f, 'the headers win over the index')
    check(isinstance(f, dict) and len(f['warnings']) == 2 and 'about 5 tensors' in f['warnings'][0], 'the index is reported', f)
    for name in names[1:]:
        os.remove(os.path.join(folder, name))
    text = run(folder)
    check(isinstance(text, str) and all(n in text for n in names[1:]) and '2 of 3' in text, 'missing shards, all named', text)


def layouts_gguf():
    """Old files: a tensor per expert and part; fused q, k, v; and what a file says that is not used."""
    path = os.path.join(TMP, 'mixtral.gguf')
    plain = run(path)
    tensors, b, head = read_gguf(path)

    def rewrite(name, items, keys=b'', n_keys=0):
        infos, data = b'', b''
        for tensor, dims, content in items:
            infos += struct.pack('<Q', len(tensor)) + tensor.encode() + struct.pack('<I', len(dims))
            infos += b''.join(struct.pack('<Q', d) for d in dims) + struct.pack('<IQ', 0, len(data))
            data += content + bytes(-len(content) % 32)
        h = b[:8] + struct.pack('<QQ', len(items), struct.unpack_from('<Q', b, 16)[0] + n_keys) + b[24:head] + keys + infos
        out = os.path.join(TMP, name)
        with open(out, 'wb') as f:
            f.write(h + bytes(-len(h) % 32) + data)
        return out

    def content(t):
        return b[t[3]:t[3] + t[4]]

    items = []
    for name, t in tensors.items():
        if '_exps' not in name:
            items.append((name, t[2], content(t)))
            continue
        n = t[2][2]
        for x in range(n):
            items.append((name.replace('_exps', '.%d' % x), t[2][:2], content(t)[x * t[4] // n:(x + 1) * t[4] // n]))
    same_regions(plain, run(rewrite('old-mixtral.gguf', items)), 'mixtral, one tensor per expert')
    fused = []
    for name, t in tensors.items():
        if 'ffn_gate_exps' in name:
            up, n = tensors[name.replace('gate', 'up')], t[2][2]
            fused.append((name.replace('gate', 'gate_up'), [t[2][0], 2 * t[2][1], n],
                          b''.join(content(s)[x * s[4] // n:(x + 1) * s[4] // n] for x in range(n) for s in (t, up))))
        elif 'ffn_up_exps' not in name:
            fused.append((name, t[2], content(t)))
    same_regions(plain, run(rewrite('fused-mixtral.gguf', fused)), 'mixtral, gate and up stacked')
    joined = []
    for name, t in tensors.items():
        if 'attn_q.' in name:
            parts = [tensors[name.replace('attn_q', 'attn_' + p)] for p in 'qkv']
            joined.append((name.replace('attn_q', 'attn_qkv'), [t[2][0], sum(p[2][1] for p in parts)], b''.join(map(content, parts))))
        elif 'attn_k.' not in name and 'attn_v.' not in name:
            joined.append((name, t[2], content(t)))
    f = run(rewrite('qkv-mixtral.gguf', joined))
    check(isinstance(f, dict) and set(f['layers'][0]['mat']) == {'qkv', 'o', 'router'} and
          f['units'][f['layers'][0]['mat']['qkv']]['parts'][0]['rows'] == 128, 'fused q, k, v', f)

    def key(name, value):
        return struct.pack('<Q', len(name)) + name.encode() + struct.pack('<II', 4, value)

    every = [(n, t[2], content(t)) for n, t in tensors.items()]
    f = run(rewrite('window.gguf', every, key('llama.attention.sliding_window', 64) + key('llama.swirl', 3), 2))
    check(isinstance(f, dict) and len(f['warnings']) == 2 and all(l['window'] == 0 for l in f['layers']) and
          any('sliding_window' in w for w in f['warnings']) and any('llama.swirl' in w for w in f['warnings']), 'unused keys', f)
    f = run(rewrite('nextn.gguf', every + [('blk.4.nextn.eh_proj.weight', [8, 8], bytes(256))]))
    check(isinstance(f, dict) and len(f['warnings']) == 1 and 'past the last layer' in f['warnings'][0], 'blocks past the end', f)
    f = run(rewrite('longrope.gguf', every + [('rope_factors_long.weight', [8], bytes(32))]))
    check(isinstance(f, str) and 'longrope' in f, 'longrope is refused by name', f)


def archcheck():
    script = os.path.join(DATA, 'archcheck', 'archcheck.py')
    if not os.path.exists(script):
        print('skipped: no test data at ../shared/data (archcheck)')
        return
    names = ['llama', 'mixtral', 'qwen2', 'qwen3', 'qwen3moe', 'gemma3']
    out = os.path.join(TMP, 'archcheck')
    subprocess.run([PYTHON, script, out, *names], check=True, stdout=subprocess.DEVNULL)
    for name in names:
        check_model(os.path.join(out, name + '.gguf'), name, 'archcheck ' + name)
    g = run(os.path.join(out, 'gemma3.gguf'))
    check(isinstance(g, dict) and close(g['ropes'][0]['inv_freq'][0], 1 / 8) and g['ropes'][1]['inv_freq'][0] == 1,
          'archcheck gemma3: only full layers are scaled')


def dummy():
    """60 GB and more of nothing: half a second and 100 MB to inspect (twice that in a sanitizer build)."""
    path = make('llama-70b', 'dummy.gguf', '--format', 'Q8_0', '--sparse')
    i = run(path, '--inspect')
    check(isinstance(i, dict), 'dummy opens', i)
    if isinstance(i, dict):
        print('dummy: %.1f GB inspected in %.3f s, peak %.1f MB' % (i['total'] / 1e9, i['seconds'], i['peak_bytes'] / 1e6))
        slower = 4 if os.environ.get('LEAT_SLOW_BUILD') else 1
        check(i['total'] > 60e9 and i['runs'], 'dummy: size', i)
        check(i['seconds'] < 0.5 * slower, 'dummy: time', i['seconds'])
        check(i['peak_bytes'] < 100e6 * slower, 'dummy: memory', i['peak_bytes'])
    path = make('qwen3moe-30b', 'dummy-moe.gguf', '--format', 'Q4_K_M', '--sparse')
    i = run(path, '--inspect')
    check(isinstance(i, dict) and i['runs'], 'dummy moe', i)
    if isinstance(i, dict):
        experts = i['groups']['experts']
        check(experts[2] == experts[1] * 8 // 128 and i['cycle'] == experts[2], 'dummy moe: 8 of 128 experts per token', experts)
        check(i['token'] == sum(g[2] for g in i['groups'].values()) and i['total'] == sum(g[1] for g in i['groups'].values()),
              'dummy moe: groups add up')
        check(30e9 < i['values'] < 31.5e9, 'dummy moe: 30 B parameters', i['values'])


try:
    for step in (architectures, formats, splits, layouts_hf, shards_hf, layouts_gguf, archcheck, dummy):
        step()
finally:
    shutil.rmtree(TMP)
print('%d checks failed' % len(failed))
sys.exit(1 if failed else 0)
