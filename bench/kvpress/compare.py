#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which positions kvtools and kvpress keep of the same prompts, head by head.  See README.md."""
import argparse, collections, os, sys, tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
import ours, presses

W, F = presses.WINDOW, presses.ALPHA
SNAP = ["snapkv", "-w", W, "--pool", "avg", "--pool-width", presses.KERNEL]


def same_floor(C):
    """kvpress's floor counts the window: int(C * alpha) entries of a head.  Ours counts history only."""
    return ["adakv", "--mode", "safeguard", "--tie", "position", "--alpha", (max(0, int(C * F) - W) + 0.5) / (C - W)]


# row of the table: press, kv-score, kv-budget (of the capacity)
ROWS = {
    "snapkv": ("snapkv", SNAP, lambda C: ["uniform"]),
    "pyramidkv": ("pyramidkv", SNAP, lambda C: ["pyramid", "--variant", "kvpress"]),
    "pyramidkv, our default schedule": ("pyramidkv", SNAP, lambda C: ["pyramid"]),
    "adakv safeguard": ("adakv", SNAP, same_floor),
    "adakv safeguard, the same --alpha": ("adakv", SNAP, lambda C: ["adakv", "--mode", "safeguard", "--tie", "position"]),
    "tova": ("tova", ["tova"], lambda C: ["uniform"]),
    "knorm": ("knorm", ["knorm"], lambda C: ["uniform"]),
    "keydiff": ("keydiff", ["keydiff"], lambda C: ["uniform"]),
    "streaming": ("streaming", ["streaming"], lambda C: ["uniform"]),
    "observed": ("observed", ["observed"], lambda C: ["uniform"]),
    "expected-attention": ("expected-attention", ["expected-attention"], lambda C: ["uniform"]),
}
SINKS = {"expected-attention": 4}
FORWARD = ["each its own", "kvpress's for both"]  # whose queries, keys and values
CLASSES = ["identical", "tie", "near", "noise", "budget", "different"]


def outside(a, b):
    """Of two lists of sets the (head, position) that only one has."""
    return ([(h, j) for h in range(len(a)) for j in numpy.setdiff1d(a[h], b[h])],
            [(h, j) for h in range(len(a)) for j in numpy.setdiff1d(b[h], a[h])])


def judge(theirs, mine, s, t):
    """The class of one head's difference, and the gap between the scores at the cut as a share of them.  theirs, mine: what
    only one side keeps; s: their scores, t: ours."""
    if any(j >= t.shape[1] for _, j in theirs + mine):
        return "different", 0
    x, y = numpy.array([s[p] for p in theirs]), numpy.array([s[p] for p in mine])
    gap, size = x.max() - y.min(), max(abs(x).max(), abs(y).max())
    own = max(t[p] for p in mine) - min(t[p] for p in theirs)
    off = max(abs(s[p] - t[p]) for p in theirs) + max(abs(s[p] - t[p]) for p in mine)
    share = gap / size if size else 0
    if gap == 0 or own == 0:
        return "tie", share
    if gap <= 1e-7 + 2e-5 * size:
        return "near", share
    return ("noise" if gap <= off * 1.000001 else "different"), share


def count(table, row, theirs, mine, s, t):
    """theirs, mine: a layer's kept sets."""
    whole = outside(theirs, mine)
    for h in range(len(theirs)):
        a, b = outside(theirs[h:h + 1], mine[h:h + 1])
        a, b = [(h, j) for _, j in a], [(h, j) for _, j in b]
        kind, share = "identical", 0
        if sum(map(len, theirs)) != sum(map(len, mine)):
            kind = "budget"
        elif len(a) == len(b) > 0:
            kind, share = judge(a, b, s, t)
        elif a or b:  # the heads' counts differ: one of the layer's ranking
            kind, share = judge(*whole, s, t)
        table[row][kind] += 1
        table[row]["heads"] += 1
        table[row]["entries"] += len(theirs[h])
        table[row]["shared"] += len(numpy.intersect1d(theirs[h], mine[h]))
        table[row]["gap"] = max(table[row]["gap"], share)


def score_error(s, t):
    """Largest difference of scores in units of METHODS' tolerance, 1e-7 + 2e-5 |score|."""
    s = s.astype(float)
    return (abs(s - t) / (1e-7 + 2e-5 * numpy.maximum(abs(s), abs(t)))).max(initial=0)


def compare(table, layers, stream, capacities, scratch):
    made = {}
    for row, (press, score, budget) in ROWS.items():
        key = tuple(score)
        out = scratch / ("score-%s.kv" % score[0])
        if key not in made:
            made[key] = ours.scored(stream, score, out)
        t = made[key]
        for l, s in enumerate(t):
            f, n = SINKS.get(press, 0), s.shape[1] - (press == "tova")  # the others' scores are stand-ins
            table[row]["error"] = max(table[row]["error"], score_error(layers[l]["scores"][press][:, f:n], s[:, f:n]))
        for C in capacities:
            sets = ours.kept(stream, out, budget(C), C, scratch)
            for l, mine in enumerate(sets):
                s = layers[l]["scores"][press]
                count(table, row, layers[l]["kept"][press, C], mine, s, t[l] if t[l].size else numpy.zeros_like(s))


def prompts(path, tokenizer):
    for line in open(path):
        if line.strip() and not line.startswith("#"):
            file, skip, length = line.split()
            file = file if file.startswith("/") else ours.ROOT / file
            ids = tokenizer(Path(file).read_text(errors="replace")).input_ids[int(skip):]
            if len(ids) < int(length):
                sys.exit("%s: %d tokens behind %s, wanted %s" % (file, len(ids), skip, length))
            yield file, ids[:int(length)]


def report(tables, out):
    with open(out, "w") as f:
        columns = ["heads", *CLASSES]
        print("forward", "method", *columns, "shared_entries", "largest_gap", "score_error", sep="\t", file=f)
        for name, table in tables.items():
            for row, n in table.items():
                print(name, row, *(n[c] for c in columns), "%.6f" % (n["shared"] / n["entries"]), "%.3g" % n["gap"],
                      "%.3g" % n["error"], sep="\t", file=f)


def both(tables, o, name, tokens, capacities, layers):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        stream, given = scratch / "own.kv", scratch / "given.kv"
        ours.prefill(o.model, tokens, stream)
        compare(tables[FORWARD[0]], layers, stream, capacities, scratch)
        ours.write(ours.header(stream), tokens, layers, given)
        stream.unlink()
        compare(tables[FORWARD[1]], layers, given, capacities, scratch)
    report(tables, o.output)
    print("%s, %d tokens" % (name, len(tokens)), file=sys.stderr, flush=True)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("-m", "--model", required=True, help="GGUF file of a llama model")
    args.add_argument("-o", "--output", required=True, help="table to write")
    args.add_argument("--prompts", default=Path(__file__).with_name("prompts.tsv"))
    args.add_argument("-n", type=int, default=1000, help="only so many prompts")
    args.add_argument("--threads", type=int, default=1)
    o = args.parse_args()
    torch.set_num_threads(o.threads)
    os.environ["KV_THREADS"] = str(o.threads)
    folder, file = os.path.split(os.path.abspath(o.model))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    tables = {x: collections.defaultdict(lambda: collections.Counter(gap=0, error=0)) for x in FORWARD}
    with ThreadPoolExecutor(1) as worker:  # our side of one prompt while kvpress works on the next
        pending = []
        for name, tokens in list(prompts(o.prompts, tokenizer))[:o.n]:
            T = len(tokens)
            capacities = [T // 4, T * 3 // 5]
            layers = presses.run(model, tokens, capacities)
            while pending:
                pending.pop().result()
            pending.append(worker.submit(both, tables, o, name, tokens, capacities, layers))
        while pending:
            pending.pop().result()


if __name__ == "__main__":
    main()
