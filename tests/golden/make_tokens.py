#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Strings, words and golden token ids for the tokenizer tests.

make_tokens.py strings DICTIONARY   writes tokens.strings and tokens.words beside this script
make_tokens.py smollm2 MODEL.gguf   writes tokens.smollm2, .words and .chat, by Hugging Face's tokenizers and transformers

Strings are one per line, with \\n \\r \\t \\\\ and \\xHH for control bytes.  Ids are one line per string.  Words are hashed: each
line is the FNV-1a (64 bits) of the ids of 100 words, each id as four little-endian bytes, each word closed by ff ff ff ff; the
first half of the lines is the words as they are, the second half with a space before them.  Chats are tab-separated: family,
system text ("-": the default), user text, answer, second user text (both empty: one turn), ids.
"""
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

SENTENCES = """All human beings are born free and equal in dignity and rights.
Tous les êtres humains naissent libres et égaux en dignité et en droits.
Alle Menschen sind frei und gleich an Würde und Rechten geboren.
Todos los seres humanos nacen libres e iguales en dignidad y derechos.
Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti.
Todos os seres humanos nascem livres e iguais em dignidade e em direitos.
Все люди рождаются свободными и равными в своем достоинстве и правах.
Всі люди народжуються вільними і рівними у своїй гідності та правах.
Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.
Všichni lidé se rodí svobodní a sobě rovní co do důstojnosti a práv.
Minden emberi lény szabadon születik és egyenlő méltósága és joga van.
Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.
כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.
يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.
تمام انسان‌ها آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق برابرند.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।
সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।
மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.
ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులును సమానులును నగుదురు.
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.
人人生而自由，在尊严和权利上一律平等。
人人生而自由，在尊嚴和權利上一律平等。
すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.
ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.
Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ և իրավունքներով.
ሰብአዊ ፍጡራን ሁሉ ነጻና በክብርና በመብት እኩል ናቸው።
Binadamu wote huzaliwa huru, hali zao ni sawa kwa heshima na haki.
Semua orang dilahirkan merdeka dan mempunyai martabat dan hak-hak yang sama.
Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan.
Alla människor är födda fria och lika i värde och rättigheter.
Hver maður er borinn frjáls og jafn öðrum að virðingu og réttindum.
Saoláitear na daoine uile saor agus comhionann ina ndínit agus ina gcearta.
Genir pawb yn rhydd ac yn gydradd â'i gilydd mewn urddas a hawliau.
Toate ființele umane se nasc libere și egale în demnitate și în drepturi.
Visi žmonės gimsta laisvi ir lygūs savo orumu ir teisėmis.
Ĉiuj homoj estas denaske liberaj kaj egalaj laŭ digno kaj rajtoj.
Omnes homines liberi aequique dignitate atque iuribus nascuntur.
བོད་ཡིག མི་རིགས་ཚང་མ།
ᎣᏏᏲ ᏣᎳᎩ
ꦧꦱꦗꦮ and 𐐔𐐯𐑅𐐨𐑉𐐯𐐻 and 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 and ＦＵＬＬ ｗｉｄｔｈ""".split("\n")

CODE = [
    "#include <stdio.h>\n\nint\nmain(int argc, char **argv)\n{\n\tprintf(\"%s\\n\", argv[0]);\n\treturn argc > 1 ? 0 : 1;\n}\n",
    "def f(x, *args, **kw):\n    if x is None:\n        return {}\n    return {k: v**2 for k, v in kw.items() if v != 0}\n",
    "for (let i = 0; i < n; i++) { console.log(`${i}: ${a[i] ?? 'null'}`); } // done\n",
    "SELECT a.id, COUNT(*) AS n FROM t a LEFT JOIN u ON u.id=a.id WHERE x>=10.5 GROUP BY 1 HAVING n>2;",
    "{\"name\": \"kv\", \"list\": [1, 2.50, -3e-7, null, true], \"nested\": {\"a\": {}}}\n",
    "<div class=\"x\"><a href='https://example.org/a?b=c&amp;d=%20'>link</a></div>\r\n",
    "\\begin{equation}\n  \\sum_{i=0}^{n} \\frac{1}{x_i^2} \\le \\int_0^\\infty e^{-t}\\,dt\n\\end{equation}",
    "for f in *.c; do cc -O2 -c \"$f\" -o \"${f%.c}.o\" || exit 1; done 2>&1 | tee log",
    "--- a/x\n+++ b/x\n@@ -1,3 +1,4 @@\n-old\n+new\n \n+\t\tmore\n",
    "fn main() -> Result<(), Box<dyn Error>> { let v: Vec<u8> = vec![0; 10]; Ok(()) }",
    "\tmov\teax, DWORD PTR [rbp-0x14]\n\tadd\teax, 1\n", "0x7fffdeadBEEF 0b1010 0o755 1_000_000 1e10 .5 5. 3.14159",
    "x=1;y=2;if(x==y&&!z||w!=v){a+=b-=c;}", "#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n", "a->b.c::d<T>(e)[f]{g}",
    "camelCaseWords HTMLParser iPhone McDonald's XMLHttpRequest snake_case_name SCREAMING_SNAKE kebab-case",
    "/usr/local/share/doc/../lib C:\\Users\\Bob\\x.txt ~/.ssh/config", "user@example.com, http://[::1]:8080/#frag",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n- item\n    - nested\n\n```c\nint x;\n```\n", "==== #### **** ---- ____ ~~~~ ???? !!!! .... ,,,,",
]
EMOJI = "😀 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇫🇷🇩🇪 1️⃣ ❤️ ☃ ☃︎ 🧑🏿‍🚀 🫠 🐈‍⬛ ✨ ⚠️ 🀄 🂡 ♟️ 👩🏻‍❤️‍💋‍👨🏾 🏴󠁧󠁢󠁥󠁮󠁧󠁿".split(" ")
SPACES = [" ", "\t", "\n", "\r\n", "\r", "\u00a0", "\u3000", "\u2003", "\u200b", "\u180e", "\x85", "\x0b", "\x0c", "\u2028", "\ufeff",
          "\u1680", "\u202f", "\u205f", "\x1f", "\x1c"]
DIGITS = ["0", "7", "42", "123", "2024", "31415", "1000000", "٣٤٥", "४२", "²³", "½¾", "Ⅷ", "①②", "５６", "〇", "1.234.567,89", "12:34:56"]
CONTRACTIONS = ["I'm", "you're", "it's", "we'll", "they'd", "I've", "don't", "IT'S", "YOU'LL", "We'Re", "o'clock", "'tis", "’s", "it’s",
                "rock'n'roll", "'s", "'S", "'ll", "'LL", "'ſ", "x'ſ", "l'été", "''", "'''", "'d've", "y'all'd've"]
MARKS = ["é", "e\u0301", "ﬁ", "Å", "A\u030a", "Å", "ộ", "o\u0323\u0302", "o\u0302\u0323", "각", "\u1100\u1161\u11a8", "か\u3099",
         "ｶﾞ", "\u0301", "a\u0301\u0302\u0303", "Ω", "\u0f71\u0f72", "\u09c7\u09be", "क\u093c", "ﬃ", "ŉ", "İ", "ß", "ẞ", "ı", "ǆ", "ǅ"]
SPECIAL = ["<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|", "a<|im_end|>b", "<s>", "</s>", "[INST] x [/INST]",
           "<|begin_of_text|>", "<repo_name>x", "<|im_start|><|im_start|>", " <|im_end|> ", "<0x41>", "<unk>", "<|eot_id|>"]
BLOCKS = [(0x20, 0x7e), (0xa1, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x5d0, 0x5ea), (0x620, 0x64a), (0x905, 0x939),
          (0xe01, 0xe30), (0x10d0, 0x10f0), (0x1e00, 0x1eff), (0x2000, 0x206f), (0x20a0, 0x20b9), (0x2100, 0x218b), (0x2190, 0x23f3),
          (0x2500, 0x27bf), (0x3040, 0x3096), (0x30a0, 0x30ff), (0x4e00, 0x9fa5), (0xac00, 0xd7a3), (0xff01, 0xff5e), (0x1d400, 0x1d454),
          (0x1f300, 0x1f64f), (0x1f680, 0x1f6c5), (0x20000, 0x20100)]
WORDS = "the quick brown Fox jumps over lazy dogs tokenization internationalisation Rindfleischetikettierungsüberwachungsaufgaben " \
        "antidisestablishmentarianism naïve façade café über ångström Straße Zürich São Tomé GPU CUDA kv-cache SnapKV llama".split(" ")


def draw(rng):
    """One fragment of a mixed string."""
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice(WORDS)
    if kind == 3:
        return rng.choice(SPACES) * rng.choice([1, 1, 2, 3, 5])
    if kind == 4:
        return rng.choice(DIGITS)
    if kind == 5:
        return rng.choice(CONTRACTIONS)
    if kind == 6:
        return rng.choice(EMOJI + MARKS)
    if kind == 7:
        return rng.choice(" .,;:!?-_/\\|@#$%^&*()[]{}<>=+~`\"'") * rng.choice([1, 1, 1, 2, 3, 8])
    if kind == 8:
        return rng.choice(rng.choice(SENTENCES).split(" "))
    lo, hi = rng.choice(BLOCKS)
    return "".join(chr(rng.randint(lo, hi)) for _ in range(rng.randint(1, 5)))


def make_strings():
    rng = random.Random(20241)
    out = list(SENTENCES) + list(CODE) + EMOJI + CONTRACTIONS + MARKS + DIGITS + SPECIAL
    out += [s + e for s in (" ", "\n", "a") for e in EMOJI[:6] + MARKS + CONTRACTIONS + DIGITS]
    out += [s.replace("\n", "\r\n") for s in CODE] + ["\n".join(rng.sample(SENTENCES, 3)) for _ in range(20)]
    for s in SPACES:
        out += [s * n for n in (1, 2, 3, 4, 8, 16, 17, 33)]
        out += [a + s * n + b for a, b in (("a", "b"), ("", "b"), ("a", ""), (".", "."), ("1", "2")) for n in (1, 2, 3)]
    out += [a + b + c for a in SPACES[:6] for b in SPACES[:6] for c in ("", "x", "\n")]
    for n in (1, 2, 3, 4, 5, 7, 9, 12, 20, 40):
        out += ["9" * n, "a" * n, "ab" * n, "A" * n, "é" * n, "漢" * n, "." * n, "-" * n, "=" * n, "😀" * n, "_" * n, "xyz1" * n]
    out += ["a" * 1000, "ACGT" * 200, " " * 500 + "x", "\n" * 100, "hello" * 100, "".join(rng.choices("ACGT", k=400)),
            "".join(rng.choices("0123456789abcdef", k=300)), "https://example.org/" + "a/b-c_d?e=f&" * 20]
    for lo, hi in BLOCKS:
        out += ["".join(chr(rng.randint(lo, hi)) for _ in range(rng.randint(1, 12))) for _ in range(12)]
    while len(out) < 2800:
        out.append("".join(draw(rng) for _ in range(rng.randint(1, 12))))
    out += [s + t for s, t in zip(SENTENCES, SENTENCES[1:])]
    # U+2581 is left out: SentencePiece takes it for a space, this library does not (lib/text/spm.h)
    return [s for s in dict.fromkeys(out) if s and "\u2581" not in s]


def escape(s):
    o = []
    for b in s.encode():
        o.append({9: b"\\t", 10: b"\\n", 13: b"\\r", 92: b"\\\\"}.get(b) or (b"\\x%02x" % b if b < 32 or b == 127 else bytes([b])))
    return b"".join(o)


def unescape(line):
    o, i = bytearray(), 0
    while i < len(line):
        if line[i] != 92:
            o.append(line[i])
            i += 1
        elif line[i + 1] == ord("x"):
            o.append(int(line[i + 2:i + 4], 16))
            i += 4
        else:
            o.append({ord("t"): 9, ord("n"): 10, ord("r"): 13, 92: 92}[line[i + 1]])
            i += 2
    return o.decode()


def read_strings():
    with open(os.path.join(HERE, "tokens.strings"), "rb") as f:
        return [unescape(line) for line in f.read().split(b"\n")[:-1]]


def read_words():
    with open(os.path.join(HERE, "tokens.words"), encoding="utf-8") as f:
        return f.read().split("\n")[:-1]


def fnv(lists):
    h = 0xcbf29ce484222325
    for ids in lists:
        for i in list(ids) + [0xffffffff]:
            for b in i.to_bytes(4, "little"):
                h = (h ^ b) * 0x100000001b3 & 0xffffffffffffffff
    return h


def write_ids(name, encode):
    """Golden lists of one tokenizer; encode: str -> ids."""
    with open(name, "w") as f:
        for s in read_strings():
            f.write(" ".join(map(str, encode(s))) + "\n")
    words = read_words()
    with open(name + ".words", "w") as f:
        for space in ("", " "):
            for i in range(0, len(words), 100):
                f.write("%016x\n" % fnv(encode(space + w) for w in words[i:i + 100]))


CHATS = [("-", "hi"), ("", "hi"), ("Answer in one word.", "What is the capital of France?"), ("-", "What is 2+2?", "4", "And 3+3?"),
         ("Be brief.\nBe kind.", " leading and trailing ", "Fine", "Größe\n\n漢字 👍🏽?"), ("-", "a\tb\n\nc  "),
         ("-", "x", "The answer is 12.", "\nwhy\n")]


def write_chats(name, rows):
    """rows: family, one of CHATS, ids."""
    with open(name + ".chat", "wb") as f:
        for family, chat, ids in rows:
            cells = [family, *chat] + [""] * (4 - len(chat))
            f.write(b"\t".join([escape(c) for c in cells] + [" ".join(map(str, ids)).encode()]) + b"\n")


def messages(chat):
    """The conversation in the form chat templates take."""
    roles = ["user", "assistant", "user"]
    system = [] if chat[0] == "-" else [{"role": "system", "content": chat[0]}]
    return system + [{"role": r, "content": c} for r, c in zip(roles, chat[1:])]


def smollm2_chats(name, path, tokenizer):
    from gguf import GGUFReader
    from transformers import PreTrainedTokenizerFast
    template = GGUFReader(path).fields["tokenizer.chat_template"].contents()
    t = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template)
    # a template cannot be asked for no system turn where it has a default, so those rows are left out
    write_chats(name, [("chatml", c, t.apply_chat_template(messages(c), add_generation_prompt=True, return_dict=False))
                       for c in CHATS if c[0] != ""])


def smollm2(path):
    """The tokenizer of SmolLM2's tokenizer.json, rebuilt from the lists in its GGUF file."""
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    fields = GGUFReader(path).fields
    tokens, kinds, merges = (fields["tokenizer.ggml." + k].contents() for k in ("tokens", "token_type", "merges"))
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s, k in zip(tokens, kinds) if k == 3])
    return t


def main():
    if sys.argv[1] == "strings":
        with open(os.path.join(HERE, "tokens.strings"), "wb") as f:
            f.writelines(escape(s) + b"\n" for s in make_strings())
        with open(sys.argv[2], encoding="utf-8") as f:
            words = [w for w in f.read().split() if not w.endswith("'s")]
        step = len(words) / 20000
        with open(os.path.join(HERE, "tokens.words"), "w", encoding="utf-8") as f:
            f.writelines(words[int(i * step)] + "\n" for i in range(20000))
    else:
        t = smollm2(sys.argv[2])
        name = os.path.join(HERE, "tokens.smollm2")
        write_ids(name, lambda s: t.encode(s, add_special_tokens=False).ids)
        smollm2_chats(name, sys.argv[2], t)


if __name__ == "__main__":
    main()
