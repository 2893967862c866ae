#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Any kvtools stream as numpy arrays, by msgpack and numpy alone (formats/STREAM.md).  Usage: read_stream.py [FILE]"""
import itertools, sys
import msgpack, numpy

TYPES = {"f32": "<f4", "f16": "<f2", "bf16": "<u2", "i32": "<i4"}  # numpy has no bf16: its bits, as integers


def records(file):
    """Yields every record, and with it an array when it is a tensor's, else None."""
    unpacker = msgpack.Unpacker(file, max_buffer_size=0, unicode_errors="surrogateescape", strict_map_key=False)
    stream, record = (o for o in unpacker if o is not None), None  # nils are padding
    for record in stream:
        array = None
        if isinstance(record, dict) and "tensor" in record:
            payload = b"".join(itertools.islice(stream, record["parts"]))
            if len(payload) != record["bytes"]:
                raise EOFError("the stream is cut short in tensor " + record["tensor"])
            array = numpy.frombuffer(payload, TYPES.get(record["dtype"], "u1"))  # other types: their bytes
            if record["dtype"] in TYPES:
                array = array.reshape(record["shape"])
        yield record, array
    if not isinstance(record, dict) or "end" not in record:
        raise EOFError("the stream is cut short: no end record")


if __name__ == "__main__":
    for record, array in records(open(sys.argv[1], "rb") if len(sys.argv) > 1 else sys.stdin.buffer):
        print(record if array is None else [record["tensor"], record.get("layer"), array.dtype.name, array.shape])
