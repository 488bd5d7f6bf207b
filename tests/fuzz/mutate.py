"""Mutations of files: of bytes, and of the structure of PNG, zip, JSON, text, safetensors and NumPy files."""

import json
import pickle
import struct
import zipfile
import zlib
from io import BytesIO
from random import Random
from typing import Any

from .samples import Files, Payload, Target, torch_file, zipped

SPECIAL = ("fifo", "folder", "missing", "endless", "empty")  # what may stand in place of a file
NUMBERS = (0, 1, 2, 127, 128, 255, 256, 32767, 65535, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
TOKENS = (
    "", "0", "-1", "1e400", "-1e308", "nan", "inf", "9" * 30, "9" * 5000, "1_000", "0x10", "١", "\0", "\ufeff", '"',
    "'", ",", ";", "\n", "\r", "\t", "[", "{", "=", "#", "../../x", "/dev/zero", "a" * 5000, "é", "true", "null",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**70, 10**400, 1e308, float("nan"), float("inf"), "", "x", "\0", "\ud800", "../a.png",
    "a" * 300,
    [], {}, [[]], [1, 2], [[1e300] * 6], {"size": [40, 56]}, {"counts": [1]}, {"size": [40, 56], "counts": [2**70]},
    {"size": [40, 56], "counts": [2**63 - 1, 2**63 - 1, 2242]}, {"size": 5, "counts": "~~~~"}, "P" * 500,
)  # fmt: skip


def mutate(target: Target, random: Random) -> Files:
    """The files of a target, some of which are changed."""
    files = dict(target.files)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        name = random.choice(target.mutated)
        if not isinstance(files[name], bytes):
            continue
        files[name] = random.choice(SPECIAL) if random.random() < 0.01 else _mutate_file(name, files[name], random)
    return files


def _mutate_file(name: str, data: bytes, random: Random) -> Any:
    if random.random() < 0.35:
        return mutate_bytes(data, random)
    if data.startswith(b"\x89PNG"):
        return mutate_png(data, random)
    if data.startswith(b"PK\3\4"):
        return mutate_zip(data, random)
    if name.endswith((".json", ".jsonl")):
        return mutate_json(data, random)
    if name.endswith(".safetensors"):
        return mutate_safetensors(data, random)
    if name.endswith((".csv", ".txt", ".toml")):
        return mutate_text(data, random)
    if name.endswith((".pth", ".pt")):
        return mutate_pickle(data, random)
    return mutate_bytes(data, random)


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """Change, remove, repeat or insert bytes anywhere; the first bytes, which hold headers, more often."""
    content = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        end = len(content) if random.random() < 0.5 else min(len(content), 64)
        at = random.randrange(end + 1)
        length = random.choice((1, 1, 2, 4, 16, 256))
        kind = random.randrange(7)
        if kind == 0 and at < len(content):
            content[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            content[at : at + length] = random.randbytes(length)
        elif kind == 2:
            del content[at : at + length]
        elif kind == 3:
            content[at:at] = content[at : at + length] * random.choice((1, 2, 50))
        elif kind == 4:
            width, order = random.choice(((1, "B"), (2, "H"), (4, "I")))
            value = random.choice(NUMBERS) % 256**width
            content[at : at + width] = struct.pack(random.choice("<>") + order, value)
        elif kind == 5:
            del content[at:]
        else:
            content[at : at + length] = bytes([random.choice((0, 255))]) * length
    return bytes(content)


def mutate_png(data: bytes, random: Random) -> bytes:
    """Change the chunks of a PNG, and its packed pixels, with checksums that fit."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : end - 4]))
        at = end
    if not chunks:
        return mutate_bytes(data, random)
    number = random.randrange(len(chunks))
    kind, body = chunks[number]
    action = random.randrange(6)
    if action == 0:
        chunks[number] = (kind, mutate_bytes(body, random))
    elif action == 1 and kind == b"IDAT":
        try:
            raw = zlib.decompress(body)
        except zlib.error:
            raw = bytes(1000)
        chunks[number] = (kind, zlib.compress(mutate_bytes(raw, random)))
    elif action == 2:
        del chunks[number]
    elif action == 3:
        chunks.insert(random.randrange(len(chunks) + 1), (kind, body))
    elif action == 4:
        extra = random.choice(
            (b"iCCP", b"tRNS", b"PLTE", b"gAMA", b"eXIf", b"acTL", b"fcTL", b"zTXt", b"ABCD", b"sBIT")
        )
        chunks.insert(random.randrange(len(chunks) + 1), (extra, random.randbytes(random.choice((0, 1, 6, 8, 768)))))
    elif len(chunks[0][1]) == 13:
        header = bytearray(chunks[0][1])
        place = random.choice((0, 4, 8, 9, 10, 11, 12))
        if place < 8:
            header[place : place + 4] = struct.pack(">I", random.choice(NUMBERS))
        else:
            header[place] = random.choice((0, 1, 2, 3, 4, 6, 8, 16, 255))
        chunks[0] = (chunks[0][0], bytes(header))
    return data[:8] + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def mutate_zip(data: bytes, random: Random) -> bytes:
    """Change a member of a zip file, its name, its method, or the fields of the directory."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # mutated before
        return mutate_bytes(data, random)
    if not members:
        return mutate_bytes(data, random)
    name = random.choice(list(members))
    action = random.randrange(5)
    if action == 0:
        members[f"{random.choice(('../', '/', 'a/', ''))}{random.choice(('x.png', 'flow.npy', 'valid.npy', 'é'))}"] = (
            members.pop(name)
        )
    elif action == 1:
        members[name] = bytes(random.choice((0, 10**5, 10**7)))
    elif action == 2 and name.endswith("data.pkl"):
        members[name] = mutate_pickle(members[name], random)
    elif name.endswith(".npy"):
        members[name] = mutate_npy(members[name], random)
    else:
        members[name] = _mutate_file(name, members[name], random)
    method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    packed = zipped(members, zipfile.ZIP_STORED if "data.pkl" in name else method)
    if random.random() < 0.3:  # fields of a directory entry
        changed = bytearray(packed)
        at = changed.index(b"PK\1\2") + random.choice((4, 6, 8, 10, 16, 20, 24, 28, 30, 32, 42))
        changed[at : at + 4] = struct.pack("<I", random.choice(NUMBERS))
        return bytes(changed)
    return packed


def mutate_npy(data: bytes, random: Random) -> bytes:
    """Change the header of a NumPy array, which keeps its length."""
    if len(data) < 12 or random.random() < 0.3:
        return mutate_bytes(data, random)
    end = 10 + int.from_bytes(data[8:10], "little")
    header = mutate_text(data[10:end].rstrip(), random)[:60000]
    header = header.ljust(end - 11) + b"\n"
    return data[:8] + struct.pack("<H", len(header) % 2**16) + header + data[end:]


def mutate_text(data: bytes, random: Random) -> bytes:
    """Change words, lines or characters of a text."""
    text = data.decode(errors="replace")
    lines = text.splitlines(keepends=True) or [""]
    number, action = random.randrange(len(lines)), random.randrange(6)
    if action == 0:
        del lines[number]
    elif action == 1:
        lines.insert(random.randrange(len(lines) + 1), lines[number] * random.choice((1, 2, 100)))
    elif action == 2:
        at = random.randrange(len(lines[number]) + 1)
        lines[number] = lines[number][:at] + random.choice(TOKENS) + lines[number][at:]
    elif action == 3:
        deep = random.choice(("[", "{", "(", "a.", '{"a":', "a = [")) * random.choice((10, 3000, 100_000))
        lines.insert(number, deep)
    else:
        for separator in random.sample([",", " ", ";", "="], 4):
            words = lines[number].rstrip("\n").split(separator)
            if len(words) > 1:
                words[random.randrange(len(words))] = random.choice(TOKENS)
                lines[number] = separator.join(words) + "\n"
                break
    return "".join(lines).encode(errors="surrogatepass") + random.choice((b"", b"", b"", b"\xff"))


def mutate_json(data: bytes, random: Random) -> bytes:
    """Change one value of a JSON text."""
    if random.random() < 0.2:
        return mutate_text(data, random)
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_text(data, random)
    places: list[tuple[Any, Any]] = []
    pending = [tree]
    while pending:
        node = pending.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            places.append((node, key))
            pending.append(node[key])
    if not places or random.random() < 0.03:
        return json.dumps(random.choice(VALUES)).encode()
    node, key = random.choice(places)
    if random.random() < 0.2:
        del node[key]
    else:
        node[key] = random.choice(VALUES)
    return json.dumps(tree).encode()


def mutate_safetensors(data: bytes, random: Random) -> bytes:
    """Change the header of a safetensors file, whose length fits again."""
    end = 8 + int.from_bytes(data[:8], "little")
    if end > len(data):
        return mutate_bytes(data, random)
    header = mutate_json(data[8:end], random)
    return struct.pack("<Q", len(header)) + header + data[end:]


def mutate_pickle(data: bytes, random: Random) -> bytes:
    """Change bytes of a pickle, or put in a payload that would run code."""
    if random.random() < 0.6:
        return mutate_bytes(data, random)
    payload = {random.choice(("a", "state_dict", "format")): Payload()}
    protocol = random.choice((0, 1, 2, 3, 4, 5))
    if random.random() < 0.4 or not data.startswith(b"\x80"):
        return pickle.dumps(payload, protocol=protocol)
    return torch_file(payload, old=random.random() < 0.5)
