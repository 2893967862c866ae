# SPDX-License-Identifier: MIT
"""llama.cpp: a prefill and a greedy answer.  Prints one JSON object; seconds are those of the work alone, after a first
short run that brings weights and code into memory."""
import argparse
import json
import time

a = argparse.ArgumentParser()
a.add_argument("model")
a.add_argument("text")
a.add_argument("tokens", type=int, help="that the text must have")
a.add_argument("--decode", type=int, default=0, help="tokens of the answer")
a.add_argument("--threads", type=int, required=True)
a.add_argument("--flash", type=int, default=1)
a.add_argument("--batch", type=int, default=2048)
a.add_argument("--ubatch", type=int, default=512)
o = a.parse_args()

from llama_cpp import Llama  # noqa: E402
import llama_cpp  # noqa: E402
import numpy  # noqa: E402

begin = time.perf_counter()
llm = Llama(o.model, n_ctx=o.tokens + max(o.decode, 1), n_batch=o.batch, n_ubatch=o.ubatch, n_threads=o.threads,
            n_threads_batch=o.threads, flash_attn=bool(o.flash), verbose=False)
ids = llm.tokenize(open(o.text, "rb").read(), add_bos=True, special=False)
assert len(ids) == o.tokens, f"{len(ids)} tokens, expected {o.tokens}"
load = time.perf_counter() - begin


def likeliest():
    logits = llama_cpp.llama_get_logits_ith(llm._ctx.ctx, -1)
    return int(numpy.ctypeslib.as_array(logits, shape=(llm.n_vocab(),)).argmax())


llm.eval(ids[:min(len(ids), o.ubatch)])
likeliest()
llm.reset()

begin = time.perf_counter()
llm.eval(ids)
answer = [likeliest()]
prefill = time.perf_counter() - begin
begin = time.perf_counter()
for _ in range(o.decode - 1):
    llm.eval(answer[-1:])
    answer.append(likeliest())
decode = time.perf_counter() - begin
print(json.dumps({"load_s": load, "prefill_s": prefill, "decode_s": decode, "ids": answer[:16],
                  "version": llama_cpp.__version__}))
