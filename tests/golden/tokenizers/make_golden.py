#!/usr/bin/env python3
"""Writes the golden files of this folder with Hugging Face tokenizers (made with 0.23.3).

    python3 -m venv /tmp/v && /tmp/v/bin/pip install tokenizers==0.23.3
    /tmp/v/bin/python make_golden.py

NAME.json is a small tokenizer.json, trained here on the text below; cases.json holds what it must give: for each text the
ids with special tokens parsed, the ids with their text taken as text, and the decoded text. pieces.json holds, for each
pattern of patterns.json (the pre-tokenizers by name, as docs/tokenizers.md lists them), how texts are cut, in bytes.
Texts keep to characters of Unicode 13 and older, so that every library agrees on what they are."""
import json
import os
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

HERE = os.path.dirname(os.path.abspath(__file__))

CORPUS = """The mill stands by the river, and the leat carries the water to the wheel. When the water is low, the miller
waits; when it's high, he doesn't. I'll go there, you'll see, they've been told: we're late, I'd say, and I'm sure.
Die Mühle am Fluß klappert, über dem Wehr fällt das Wasser. Où est l'été? Un café près du moulin, s'il vous plaît.
Мельница стоит у реки, вода течёт. 水は川から水車へ流れる。水車小屋の川。 在河边的水磨坊，水流很快。
def turn(wheel, n=10):\n    for i in range(n):\n        wheel.rotate(i * 360 / n)  # degrees\n    return wheel\n
1 12 123 1234 12345 2024-11-30 3.14159 0x1F 1,000,000 <div class="x">&nbsp;</div> https://example.com/a?b=1&c=2
Der Müller, die Müllerin; river river river water water wheel wheel. THE WATER WHEEL AND THE RIVER.\n\n\tend.
""" * 4

TEXTS = [
    "", " ", "  ", "a", " a", "a ", "The water wheel", " The water wheel", "The  water   wheel ", "\n", "\n\n\n", "\r\n\r\n",
    "\t\tindent\t", "it's I'LL they've 'S", "1 12 123 1234 12345 1234567 12345678", "3.14 0x1F 1,000", "über Fluß café",
    "cafe\u0301 A\u030angstrom", "q\u0323\u0307 q\u0307\u0323", "\u1e9b\u0323 \ufb01 \u00bd \u2167 \uff21\uff22 \u3392",
    "\u0130stanbul I\u0307 \u03a3\u03c2 \u1e9e \u01c5", "\ud55c\uae00 \u1112\u1161\u11ab", "水車小屋の川。在河边，水流很快", "Мельница у реки",
    "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดี ชาวโลก", "👍🏽 👨\u200d👩\u200d👧 🇫🇷", "\u00a0nbsp\u3000wide\u2028line\u180emvs",
    "zero\u200bwidth\u200cnon\u200djoiner\ufeff", "\x00nul\x01\x1b[0m\x7f", "\ufffd\ufffd", "▁already▁marked ▁",
    "a" * 60, "=" * 45, "  \n  \n\n x", "<s>hello</s>", "<s> hello </s> x", "x<tool>y <tool> z", "a<w>b <w> c", " <w>", "<w>", "é<w>",
    "  <l>  x", "x  <r>  y", "Über ÜBER", "über-über", "<0x41><0xE4>", "<|end|> <|end", "!?...---###", "don't “quote” — dash…", "x=1;y+=2", "{}[]()",
    "\u2460\u24b6 _under_score_ \u203f", "ab12cd34", "\u0661\u0662\u0663 \u00b2\u00b3",
]


def random_texts(seed, count, tokens=()):
    r = random.Random(seed)
    blocks = [(0x20, 0x7e)] * 5 + [(0xa1, 0x17f), (0x300, 0x36f), (0x391, 0x3c9), (0x410, 0x44f), (0x5d0, 0x5ea),
                                   (0x621, 0x64a), (0x905, 0x939), (0xe01, 0xe3a), (0x3041, 0x3096), (0x4e00, 0x9fa5),
                                   (0xac00, 0xd7a3), (0x1f300, 0x1f5ff), (0x2010, 0x2027), (0x2190, 0x21ff)]
    spaces = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "   "]
    words = CORPUS.split() + list(tokens) * 6
    out = []
    for _ in range(count):
        parts = []
        for _ in range(r.randint(1, 9)):
            k = r.random()
            if k < 0.45:
                parts.append(r.choice(words))
            elif k < 0.75:
                parts.append(r.choice(spaces))
            elif k < 0.85:
                parts.append(str(r.randint(0, 10 ** r.randint(1, 9))))
            else:
                lo, hi = r.choice(blocks)
                parts.append("".join(chr(r.randint(lo, hi)) for _ in range(r.randint(1, 4))))
        out.append("".join(parts))
    return out


def train(model, normalizer=None, pre=None, size=420, special=(), alphabet=()):
    t = Tokenizer(model)
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), initial_alphabet=list(alphabet),
                                  show_progress=False)
    t.train_from_iterator([CORPUS], trainer)
    return t


def with_bytes(t, **options):
    """The same tokenizer with byte tokens and options of the model set, by way of its JSON."""
    j = json.loads(t.to_str())
    model = j["model"]
    used = max(model["vocab"].values()) + 1
    if options.get("byte_fallback"):
        for b in range(256):
            model["vocab"]["<0x%02X>" % b] = used + b
    model.update(options)
    return Tokenizer.from_str(json.dumps(j))


def make():
    byte_letters = pre_tokenizers.ByteLevel.alphabet()
    out = {}

    t = train(models.BPE(), pre=pre_tokenizers.ByteLevel(add_prefix_space=True), size=560, special=["<s>", "</s>"],
              alphabet=byte_letters)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True, add_prefix_space=True)
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<w>", single_word=True), AddedToken("über"),
                  AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True, normalized=False)])
    out["byte_prefix"] = t

    split = pre_tokenizers.Split(Regex(PATTERNS["L3"][0]), "isolated")
    t = train(models.BPE(), normalizer=normalizers.NFC(), size=560, special=["<|end|>"], alphabet=byte_letters,
              pre=pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken("<s>", lstrip=True, rstrip=True)])
    out["byte_nfc"] = with_bytes(t, ignore_merges=True)

    t = train(models.BPE(unk_token="<unk>"), special=["<unk>", "<s>", "</s>"], size=380,
              normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]))
    t.pre_tokenizer = None
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(content=" ", left=1, right=0)])
    t.add_tokens([AddedToken("<tool>", normalized=True), AddedToken("<w>", single_word=True, normalized=False)])
    out["spm_prepend"] = with_bytes(t, byte_fallback=True, fuse_unk=True)

    t = train(models.BPE(unk_token="<unk>"), special=["<unk>", "<s>"], size=380,
              pre=pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=True))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(content=" ", left=1, right=0)])
    t.add_tokens([AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True)])
    out["metaspace_first"] = with_bytes(t, byte_fallback=True)

    t = train(models.BPE(unk_token="<unk>"), special=["<unk>"], size=300,
              pre=pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=False))
    t.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=False)
    out["metaspace_unk"] = t
    out["metaspace_fuse"] = with_bytes(t, fuse_unk=True)

    t = train(models.BPE(), size=300, pre=pre_tokenizers.Split(" ", "merged_with_previous"),
              normalizer=normalizers.Replace(" ", "▁"), special=["<s>"])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 300)])
    t.add_special_tokens(["</s>"])
    out["skip_unknown"] = t

    t = train(models.BPE(), size=500, alphabet=byte_letters,
              normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(),
                                               normalizers.Replace(Regex(r"\s{2,}"), " ")]),
              pre=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(True),
                                           pre_tokenizers.Punctuation(),
                                           pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    t.decoder = decoders.ByteLevel()
    t.add_tokens(["über", "<W>"])
    out["nfkc_lower"] = t

    t = train(models.BPE(), size=500, alphabet=byte_letters,
              normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Nmt()]),
              pre=pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(False),
                                           pre_tokenizers.Punctuation("contiguous"),
                                           pre_tokenizers.CharDelimiterSplit("w"),
                                           pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    t.decoder = decoders.ByteLevel()
    out["nfkd_accents"] = t

    for name, behaviour in (("removed", "removed"), ("previous", "merged_with_previous"), ("next", "merged_with_next"),
                            ("contiguous", "contiguous")):
        t = train(models.BPE(), size=420, alphabet=byte_letters, normalizer=normalizers.NFD(),
                  pre=pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[\s\p{P}]"), behaviour),
                                               pre_tokenizers.Split(Regex(r"\d|e(?=r)"), behaviour, invert=name == "next"),
                                               pre_tokenizers.Split("a", behaviour),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
        t.decoder = decoders.ByteLevel()
        out["split_" + name] = t

    t = train(models.BPE(), size=420, alphabet=byte_letters, pre=pre_tokenizers.Sequence(
        [pre_tokenizers.BertPreTokenizer(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]))
    t.decoder = decoders.ByteLevel()
    out["bert_pre"] = t
    return out


def main():
    tokens = ["<s>", "</s>", "<tool>", "<w>", "<l>", "<r>", "über", "<|end|>", "<unk>"]
    cases = []
    for n, (name, t) in enumerate(sorted(make().items())):
        with open(os.path.join(HERE, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")
        for text in TEXTS + random_texts(100 + n, 20, tokens):
            ids = t.encode(text, add_special_tokens=False).ids
            t.encode_special_tokens = True
            plain = t.encode(text, add_special_tokens=False).ids
            t.encode_special_tokens = False
            case = {"tokenizer": name, "text": text, "ids": ids}
            decoded = t.decode(ids, skip_special_tokens=False)
            # Left out: the byte-level decoder takes the letters of an added token ("über") for bytes.
            if "\ufffd" not in decoded or "\ufffd" in text:
                case["decoded"] = decoded
            if plain != ids:
                case["plain_ids"] = plain
            whole = t.encode(text, add_special_tokens=True).ids
            # Left out: a text that spells its own <s> gets a second one there, but not from Leat.
            if whole != ids and "<s>" not in text and "</s>" not in text:
                case["whole_ids"] = whole
            cases.append(case)
    dump("cases.json", cases)
    pieces = []
    for n, (key, patterns) in enumerate(sorted(PATTERNS.items())):
        pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])
        for text in [x for x in TEXTS if x][2::3] + random_texts(500 + n, 12):
            cut = [len(p.encode()) for p, _ in pre.pre_tokenize_str(text)]
            assert sum(cut) == len(text.encode())
            pieces.append({"pattern": key, "text": text, "pieces": cut})
    dump("pieces.json", pieces)
    print(len(cases), "cases,", len(pieces), "texts cut")


def dump(name, rows):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=True, separators=(",", ":")) for r in rows) + "\n]\n")


with open(os.path.join(HERE, "patterns.json"), encoding="utf-8") as f:
    PATTERNS = {k: [p.replace("\\x{", "\\x{") for p in v] for k, v in json.load(f).items()}

if __name__ == "__main__":
    main()
