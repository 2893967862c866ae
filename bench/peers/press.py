# SPDX-License-Identifier: MIT
"""kvpress: prefill, SnapKV with our window and pooling width, a greedy answer.  To be timed from outside as a whole
process.  Prints one JSON object."""
import argparse
import json
import math
import warnings

a = argparse.ArgumentParser()
a.add_argument("model", help="Hugging Face folder")
a.add_argument("text")
a.add_argument("tokens", type=int, help="that the text must have")
a.add_argument("--decode", type=int, required=True, help="tokens of the answer")
a.add_argument("--budget", type=int, required=True, help="entries to keep per head")
a.add_argument("--threads", type=int, required=True)
a.add_argument("--dtype", default="float32")
o = a.parse_args()

import kvpress  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from importlib.metadata import version  # noqa: E402

warnings.simplefilter("ignore")
torch.set_num_threads(o.threads)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
tokenizer = transformers.AutoTokenizer.from_pretrained(o.model)
model = transformers.AutoModelForCausalLM.from_pretrained(o.model, dtype=getattr(torch, o.dtype),
                                                          attn_implementation="sdpa").eval()
ids = tokenizer(open(o.text).read(), return_tensors="pt").input_ids
assert ids.shape[1] == o.tokens, f"{ids.shape[1]} tokens, expected {o.tokens}"

ratio = 1 - o.budget / o.tokens  # kvpress rounds what it keeps down
while int(o.tokens * (1 - ratio)) < o.budget:
    ratio = math.nextafter(ratio, 0)
cache = transformers.DynamicCache()
with torch.inference_mode():
    with kvpress.SnapKVPress(ratio, window_size=32, kernel_size=7)(model):
        out = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    answer = [int(out.logits[0, -1].argmax())]
    kept = cache.get_seq_length()
    assert kept == o.budget, f"kvpress kept {kept} entries"
    for i in range(o.decode - 1):
        out = model(torch.tensor([answer[-1:]]), past_key_values=cache, use_cache=True,
                    position_ids=torch.tensor([[o.tokens + i]]))
        answer.append(int(out.logits[0, -1].argmax()))
print(json.dumps({"text": tokenizer.decode(answer), "version": "kvpress " + version("kvpress")}))
