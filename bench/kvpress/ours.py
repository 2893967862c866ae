# SPDX-License-Identifier: MIT
"""Our side: the pipeline's scores and kept positions, from its own forward pass or from given queries, keys and values."""
import os, subprocess, sys
import msgpack, numpy, xxhash
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("KV_BUILD", ROOT / "build")) / "bin"
sys.path.insert(0, str(ROOT / "examples"))
from read_stream import records  # noqa: E402

AXES = {"q": ["head", "query", "dim"], "k": ["kv_head", "token", "dim"], "v": ["kv_head", "token", "dim"]}


def tool(name, *args):
    done = subprocess.run([BIN / ("kv-" + name), "--quiet", *map(str, args)], stdout=subprocess.PIPE)
    if done.returncode:
        raise RuntimeError("kv-%s %s failed" % (name, " ".join(map(str, args))))
    return done.stdout


def prefill(model, tokens, out):
    tool("prefill", "-m", model, "--dtype", "f32", "--queries", "all", "--drop", "logits", "--device", "cpu",
         "--tokens", " ".join(map(str, tokens)), "-o", out)


def write(header, tokens, layers, out):
    """A stream with these tensors, as formats/STREAM.md has it."""
    with open(out, "wb") as f:
        def put(x):
            f.write(msgpack.packb(x))
        put(header)
        put({"sequence": 0, "id": "0", "tokens": tokens, "prompt_length": len(tokens)})
        for l, layer in enumerate(layers):
            for name, axes in AXES.items():
                data = numpy.ascontiguousarray(layer[name], "<f4").tobytes()
                put({"tensor": name, "layer": l, "dtype": "f32", "shape": list(layer[name].shape), "axes": axes,
                     "bytes": len(data), "parts": 1, "xxh3": xxhash.xxh3_64_hexdigest(data),
                     "attrs": {"region": "all", "first_position": 0} if name == "q" else {}})
                f.write(b"\xc0" * (-(f.tell() + 5) % 64) + b"\xc6" + len(data).to_bytes(4, "big") + data)
        put({"close": 0, "status": "ok"})
        put({"end": 1})


def header(stream):
    with open(stream, "rb") as f:
        return next(records(f))[0]


def tensors(stream, *names):
    """{(name, layer): (array, attributes)}."""
    with open(stream, "rb") as f:
        return {(r["tensor"], r.get("layer")): (a, r.get("attrs", {})) for r, a in records(f) if a is not None
                and r["tensor"] in names}


def scored(stream, score, out):
    """Writes the scores; returns them pooled, [H][n] for every layer, or nothing where a method has none."""
    tool("score", *score, "--only", "score", "-o", out, stream)
    found = tensors(out, "score")
    return [pooled(*found["score", l]) for l in range(len(found))]


def pooled(raw, attrs):
    if attrs.get("pool", "none") == "none":
        return raw.astype(float)
    assert attrs["pool"] == "avg"
    K = attrs["pool_width"]
    padded = numpy.pad(raw.astype(float), ((0, 0), (K // 2, K // 2)))
    return numpy.lib.stride_tricks.sliding_window_view(padded, K, axis=1).mean(-1)


def kept(cache, scores, budget, capacity, scratch):
    """For every layer a list of every head's kept positions, ascending."""
    budgets, sets = scratch / "budget.kv", scratch / "kept.kv"
    tool("budget", *budget, "-b", capacity, "-o", budgets, scores)
    tool("evict", "--tie", "position", "--only", "index,offset", "-o", sets, cache, budgets)
    found = tensors(sets, "index", "offset")
    return [numpy.split(found["index", l][0], found["offset", l][0][1:-1]) for l in range(len(found) // 2)]
