#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Cut what the tests need out of the reference implementation's fixtures.

    make_oracle.py FIXTURES OUT

FIXTURES: the folder that the reference's make_fixtures.py writes (NAME.json, NAME.npz).  OUT: tests/golden/oracle.
Kept: the records of METHODS, all budgets, selections and quantities, the arrays they name; of long prompts and large
composed budgets the kept sets, most of the bytes, go.
Nothing is computed here: numbers and kept sets are the reference's own.  Needs numpy.
"""
import glob
import io
import json
import os
import sys
import zipfile

import numpy as np

# The records of these methods, and the inputs they need.
METHODS = {
    "snapkv": ("q", "k"), "tova": ("q", "k"), "h2o": ("q", "k"), "observed": ("q", "k"), "nacl_top": ("q", "k"), "cake": ("q", "k"),
    "lookahead": ("k", "q_look", "k_look"), "ground_truth": ("k", "q_resp", "k_resp"), "laq": ("k", "q_draft"), "laq++": ("q", "k", "q_draft"),
    "speckv": ("q", "k", "q_draft", "k_draft"),
    "streaming": (), "knorm": ("k",), "keydiff": ("k",), "random": (),
    "expected_attention": ("q", "k", "v"),
    "coverage": (), "fastgen": (),
}
LONG = 250  # prompts this long leave their large kept sets behind, which are most of the bytes
SMALL = 64  # composed budgets up to here keep their sets


def save(folder, meta, arrays):
    """NAME.json, and NAME.npz with members stored uncompressed and without the clock."""
    base = os.path.join(folder, meta["name"])
    if arrays:
        meta["arrays"] = {k: list(x.shape) for k, x in arrays.items()}
        with zipfile.ZipFile(base + ".npz", "w", zipfile.ZIP_STORED) as z:
            for name, x in arrays.items():
                buf = io.BytesIO()
                np.lib.format.write_array(buf, np.ascontiguousarray(x, dtype="<f4"), allow_pickle=False)
                z.writestr(zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0)), buf.getvalue())
    with open(base + ".json", "w") as f:
        json.dump(meta, f, separators=(",", ":"))
        f.write("\n")


def load(folder, name):
    meta = json.load(open(os.path.join(folder, name + ".json")))
    path = os.path.join(folder, name + ".npz")
    return meta, dict(np.load(path)) if os.path.exists(path) else {}


def cut_score(meta, arrays):
    long = meta["S"] > 2 * LONG  # its values are large
    meta["results"] = [r for r in meta["results"]
                       if r["method"] in METHODS and not (long and r["method"] == "expected_attention")]
    out = {}
    for r in meta["results"]:
        for key in METHODS[r["method"]]:
            out[key] = arrays[key]
        if "raw" in r:
            for key in (r["raw"], r.get("pooled", r["raw"])):
                out[key] = arrays[key]
        if "mass" in r:
            out[r["mass"]] = arrays[r["mass"]]
        if meta["S"] >= LONG and "select" in r:
            r["select"] = [x for x in r["select"] if x["C"] <= meta["S"] // 3]
    return out


def cut_compose(meta, arrays):
    for r in meta["results"]:
        if r["C"] > SMALL and not r["layer"] == r["head"] == "uniform":
            del r["kept"]
    return arrays


def main():
    src, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    names = sorted(os.path.basename(p)[:-5] for p in glob.glob(os.path.join(src, "s[0-9]*.json")))
    cut = [(name, cut_score) for name in names]
    cut += [("compose", cut_compose)]
    cut += [(name, lambda meta, arrays: arrays) for name in ("budgets", "layers", "nacl_random", "select", "quantities", "training")]
    for name, f in cut:
        meta, arrays = load(src, name)
        meta.pop("arrays", None)
        arrays = f(meta, arrays)
        save(out, meta, arrays)


if __name__ == "__main__":
    main()
