#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reference values of SmolLM2-135M-Instruct (Q4_1 GGUF) from transformers + torch, in float32.

    python3 make_smollm2.py models/SmolLM2-135M-Instruct.Q4_1.gguf examples/report.txt > tests/golden/smollm2.tsv

Needs torch, transformers, gguf (made with 2.15.0, 5.24.0, 0.19.0).  Prompts are prefixes of the report, in bytes, encoded without
special tokens.  Lines, tab-separated:
    ids     BYTES  N      the N token ids of the prefix
    logit   BYTES  ID     VALUE   of the last prompt token: every 16th id and the 64 largest
    greedy  BYTES  64 ids generated greedily behind the prefix
"""
import os
import sys

import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

path, document = sys.argv[1:3]
folder, name = os.path.split(os.path.abspath(path))
torch.set_grad_enabled(False)
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
# SmolLM2 splits digits off before the byte-level pattern; transformers loses that when it reads a GGUF file.
tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
text = open(document, "rb").read()

for size in (13, 150, 600, 2400, 6000):
    ids = tokenizer(text[:size].decode(), add_special_tokens=False, return_tensors="pt").input_ids
    print("ids", size, ids.shape[1], *ids[0].tolist(), sep="\t")
    logits = model(ids).logits[0, -1]
    wanted = sorted(set(range(0, len(logits), 16)) | set(logits.topk(64).indices.tolist()))
    for i in wanted:
        print("logit", size, i, f"{logits[i].item():.5f}", sep="\t")
    if size in (13, 600, 6000):
        out = model.generate(ids, max_new_tokens=64, min_new_tokens=64, do_sample=False)[0, ids.shape[1]:]
        print("greedy", size, *out.tolist(), sep="\t")
