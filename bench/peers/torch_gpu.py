# SPDX-License-Identifier: MIT
"""torch on a card: prefill and decoding of a Llama of random bf16 weights, its attention by scaled_dot_product_attention.
Prints TSV as bench/card_times.c does: what, tokens, entries, seconds, the best of some rounds after a warm-up.

As in kvtools, logits are those of the last token alone, and so is the feed-forward part of the last layer; a cache of
`entries` per head is what an eviction would leave.  Eager, not compiled, with torch's own settings: one product for
queries, keys and values, one for both halves of the feed-forward part, fused attention as torch chooses it."""
import argparse
import sys
import time

a = argparse.ArgumentParser()
a.add_argument("--sizes", default="4096")
a.add_argument("--entries", default="128,1024")
a.add_argument("--rounds", type=int, default=2)
a.add_argument("--tokens", type=int, default=32, help="of an answer")
a.add_argument("--device", default="cuda")
a.add_argument("--dtype", default="bfloat16")
for name, value in {"layers": 32, "heads": 32, "kv-heads": 8, "head-dim": 128, "embedding": 4096,
                    "feed-forward": 14336, "vocabulary": 128256}.items():
    a.add_argument("--" + name, type=int, default=value)
o = a.parse_args()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

device, dtype = torch.device(o.device), getattr(torch, o.dtype)
torch.manual_seed(0)
Hq, Hkv, D, d, ff = o.heads, o.kv_heads, o.head_dim, o.embedding, o.feed_forward


def matrix(rows, cols):
    return torch.randn(rows, cols, device=device, dtype=dtype) * (1.25 / d ** 0.5)


def layer():
    return {"qkv": matrix((Hq + 2 * Hkv) * D, d), "o": matrix(d, Hq * D), "gate_up": matrix(2 * ff, d),
            "down": matrix(d, ff), "norm": torch.ones(d, device=device, dtype=dtype)}


layers = [layer() for _ in range(o.layers)]
embed, out = matrix(o.vocabulary, d), matrix(o.vocabulary, d)
inv_freq = 500000.0 ** (-torch.arange(0, D, 2, device=device, dtype=torch.float64) / D)


def angles(first, n):
    turn = torch.arange(first, first + n, device=device, dtype=torch.float64)[:, None] * inv_freq
    return turn.cos().to(dtype), turn.sin().to(dtype)


def rotate(x, turn):
    c, s = turn
    x1, x2 = x[..., :D // 2], x[..., D // 2:]
    return torch.cat((x1 * c - x2 * s, x2 * c + x1 * s), -1)


def attend(q, k, v, causal):
    if hasattr(F, "rms_norm"):  # as old as enable_gqa
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=Hq != Hkv)
    k, v = (t.repeat_interleave(Hq // Hkv, 1) for t in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def norm(x, w):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, (d,), w, 1e-5)
    return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)).to(dtype) * w


def run(ids, caches, first):
    """Rows through all layers; caches: None, or per layer k and v [1][Hkv][room][D] with `first` filled entries."""
    x, n = embed[ids], ids.shape[0]
    turn = angles(first if caches is None else caches["position"], n)
    for i, w in enumerate(layers):
        h = norm(x, w["norm"]) @ w["qkv"].T
        q, k, v = (t.view(n, -1, D).transpose(0, 1)[None] for t in h.split((Hq * D, Hkv * D, Hkv * D), -1))
        q, k = rotate(q, turn), rotate(k, turn)
        if caches is not None:
            kc, vc = caches["layers"][i]
            kc[:, :, first:first + n], vc[:, :, first:first + n] = k, v
            k, v = kc[:, :, :first + n], vc[:, :, :first + n]
        if i == o.layers - 1 and n > 1:  # nothing but the last row matters from here on
            q, x = q[:, :, -1:], x[-1:]
        y = attend(q, k, v, causal=q.shape[2] > 1)
        x = x + y[0].transpose(0, 1).reshape(q.shape[2], Hq * D) @ w["o"].T
        gate, up = (norm(x, w["norm"]) @ w["gate_up"].T).chunk(2, -1)
        x = x + (F.silu(gate) * up) @ w["down"].T
    return (norm(x[-1:], layers[0]["norm"]) @ out.T).float().cpu()


def best(work, rounds):
    times = []
    for _ in range(rounds):
        if device.type == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def show(what, tokens, entries, seconds):
    print(f"{what}\t{tokens}\t{entries}\t{seconds:.6f}", flush=True)


def decode(n, entries):
    held = entries or n
    room = held + o.tokens + 1
    caches = {"position": n, "layers": [tuple(torch.zeros(1, Hkv, room, D, device=device, dtype=dtype)
                                              for _ in range(2)) for _ in layers]}
    token = torch.tensor([1], device=device)
    run(token, caches, held)

    def answer():
        for i in range(o.tokens):
            caches["position"] = n + i
            run(token, caches, held + i)
    show("decode", n, entries, best(answer, 1) / o.tokens)


print(f"torch {torch.__version__}, eager, {o.dtype}", file=sys.stderr)
with torch.inference_mode():
    for n in map(int, o.sizes.split(",")):
        ids = torch.randint(0, o.vocabulary, (n,), device=device)
        run(ids[:min(n, 512)], None, 0)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        show("prefill", n, 0, best(lambda: run(ids, None, 0), o.rounds))
        if device.type == "cuda":
            show("peak_bytes", n, 0, torch.cuda.max_memory_allocated())
        for entries in [0] + [b for b in map(int, o.entries.split(",")) if b <= n]:
            decode(n, entries)
