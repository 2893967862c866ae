# SPDX-License-Identifier: MIT
"""torch and transformers: a prefill and a greedy answer.  Prints one JSON object; seconds are those of the work alone,
after a first short run."""
import argparse
import json
import time
import warnings

a = argparse.ArgumentParser()
a.add_argument("model", help="Hugging Face folder")
a.add_argument("text")
a.add_argument("tokens", type=int, help="that the text must have")
a.add_argument("--decode", type=int, default=0, help="tokens of the answer")
a.add_argument("--threads", type=int, required=True)
a.add_argument("--dtype", default="float32")
o = a.parse_args()

import torch  # noqa: E402
import transformers  # noqa: E402

warnings.simplefilter("ignore")
torch.set_num_threads(o.threads)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
begin = time.perf_counter()
tokenizer = transformers.AutoTokenizer.from_pretrained(o.model)
model = transformers.AutoModelForCausalLM.from_pretrained(o.model, dtype=getattr(torch, o.dtype),
                                                          attn_implementation="sdpa").eval()
ids = tokenizer(open(o.text).read(), return_tensors="pt").input_ids
assert ids.shape[1] == o.tokens, f"{ids.shape[1]} tokens, expected {o.tokens}"
load = time.perf_counter() - begin

with torch.inference_mode():
    model(ids[:, :64], use_cache=True, logits_to_keep=1)
    begin = time.perf_counter()
    out = model(ids, use_cache=True, logits_to_keep=1)
    answer = [int(out.logits[0, -1].argmax())]
    prefill = time.perf_counter() - begin
    begin = time.perf_counter()
    for _ in range(o.decode - 1):
        out = model(torch.tensor([answer[-1:]]), past_key_values=out.past_key_values, use_cache=True)
        answer.append(int(out.logits[0, -1].argmax()))
    decode = time.perf_counter() - begin
print(json.dumps({"load_s": load, "prefill_s": prefill, "decode_s": decode, "ids": answer[:16],
                  "version": f"torch {torch.__version__}, transformers {transformers.__version__}"}))
