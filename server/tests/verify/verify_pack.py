#!/usr/bin/env python3
"""Checks an evidence pack with nothing of ours: written from README.txt of a pack and the C2SP documents
signed-note, tlog-checkpoint and tlog-proof alone. Standard library only.

usage: verify_pack.py PACK.zip [KEY]
Prints one line a finding and the two verdicts; exit code 0 only if both hold.
"""

import base64
import datetime
import hashlib
import json
import sys
import zipfile

# --- Ed25519, RFC 8032 -----------------------------------------------------------------------------------------------

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def recover_x(y, sign):
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P != 0:
        x = x * ROOT % P
    if (x * x - square) % P != 0 or (x == 0 and sign):
        return None
    return P - x if x & 1 != sign else x


def point(data):
    number = int.from_bytes(data, "little")
    y = number & ((1 << 255) - 1)
    x = recover_x(y, number >> 255)
    return None if x is None else (x, y, 1, x * y % P)


def add(a, b):
    e = (a[1] - a[0]) * (b[1] - b[0]) % P
    f = (a[1] + a[0]) * (b[1] + b[0]) % P
    g = 2 * a[3] * b[3] * D % P
    h = 2 * a[2] * b[2] % P
    i, j, k, m = f - e, h - g, h + g, f + e
    return (i * j % P, k * m % P, j * k % P, i * m % P)


def times(n, p):
    total = (0, 1, 1, 0)
    while n:
        if n & 1:
            total = add(total, p)
        p = add(p, p)
        n >>= 1
    return total


BASE_Y = 4 * pow(5, P - 2, P) % P
BASE_X = recover_x(BASE_Y, 0)
BASE = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % P)


def has_signed(key, message, signature):
    if len(signature) != 64:
        return False
    a, r, s = point(key), point(signature[:32]), int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= L:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % L
    left, right = times(s, BASE), add(r, times(h, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0


# --- signed notes ----------------------------------------------------------------------------------------------------


def read_key(text):
    name, key_id, data = text.strip().split("+", 2)
    raw = base64.b64decode(data, validate=True)
    if raw[:1] != b"\x01" or len(raw) != 33:
        raise ValueError("no Ed25519 key")
    made = hashlib.sha256(name.encode() + b"\n\x01" + raw[1:]).digest()[:4]
    if made.hex() != key_id:
        raise ValueError("the id of the key is not its own")
    return name, made, raw[1:]


def open_note(note, keys):
    """The text, and whether a known key has signed it: yes, others or broken."""
    text, _, lines = note.rpartition("\n\n")
    text += "\n"
    if not lines.endswith("\n"):
        return text, "broken"
    result = "others"
    for line in lines[:-1].split("\n"):
        dash, name, data = line.split(" ", 2)
        raw = base64.b64decode(data, validate=True)
        for known_name, known_id, key in keys:
            if (name, raw[:4]) == (known_name, known_id):
                if not has_signed(key, text.encode(), raw[4:]):
                    return text, "broken"
                result = "yes"
        if dash != "\u2014":
            return text, "broken"
    return text, result


def read_head(text):
    origin, size, root = text.split("\n")[:3]
    return origin, int(size), base64.b64decode(root, validate=True)


# --- leaves and proofs -----------------------------------------------------------------------------------------------

FIELDS = (
    "seq id event_id at kind old_state new_state attempt attempt_id reason provider "
    "provider_message_id token_id actor detail"
).split()


def micros(text):
    at = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
    since = at - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return (since.days * 86400 + since.seconds) * 1000000 + since.microseconds


def leaf_hash(fact):
    out = b"sendonce-fact/1\n"
    for name in FIELDS:
        value = fact[name]
        if value is not None:
            if name == "at":
                value = str(micros(value))
            elif name == "detail":
                value = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            else:
                value = str(value)
        if value is None:
            out += name.encode() + b" -\n"
        else:
            data = value.encode()
            out += b"%s %d %s\n" % (name.encode(), len(data), data)
    return hashlib.sha256(b"\x00" + out).digest()


def root_from(leaf, index, size, path):
    """RFC 9162, section 2.1.3.2."""
    if index >= size:
        return None
    fn, sn, r = index, size - 1, leaf
    for p in path:
        if sn == 0:
            return None
        if fn & 1 or fn == sn:
            r = hashlib.sha256(b"\x01" + p + r).digest()
            while not fn & 1 and fn != 0:
                fn >>= 1
                sn >>= 1
        else:
            r = hashlib.sha256(b"\x01" + r + p).digest()
        fn >>= 1
        sn >>= 1
    return r if sn == 0 else None


# --- the pack --------------------------------------------------------------------------------------------------------


def check(path, trusted):
    integrity, completeness = [], []
    pack = zipfile.ZipFile(path)
    names = set(pack.namelist())

    def text(name):
        if name not in names:
            completeness.append("%s is missing" % name)
            return ""
        return pack.read(name).decode()

    note = text("checkpoint")
    keys = [read_key(line) for line in (trusted or text("keys.txt").splitlines())]
    body, signed = open_note(note, keys)
    if signed != "yes":
        integrity.append("the checkpoint: signed by %s" % signed)
    origin, size, root = read_head(body)

    manifest_text = text("manifest.json")
    manifest = json.loads(manifest_text)
    statement, signed = open_note(text("manifest.note"), keys)
    if signed != "yes":
        integrity.append("the manifest: signed by %s" % signed)
    digest = hashlib.sha256(manifest_text.encode()).hexdigest()
    if statement != "sendonce-evidence/1\n%s\n%d\n%s\n" % (manifest["origin"], manifest["checkpoint_size"], digest):
        integrity.append("the manifest is not the one that was signed")
    if manifest["checkpoint_size"] > size:
        completeness.append("the checkpoint is older than the manifest")
    elif (manifest["origin"], manifest["checkpoint_root"]) != (origin, base64.b64encode(root).decode()):
        integrity.append("fork: the manifest knows another tree")

    places = []
    for line in text("places.txt").splitlines():
        index, digest = line.split(" ")
        places.append((int(index), base64.b64decode(digest)))
    for index, leaf in places:
        proof = text("proofs/%012d.tlog-proof" % index)
        if not proof:
            continue
        head, _, proof_note = proof.partition("\n\n")
        lines = head.split("\n")
        path = [base64.b64decode(line, validate=True) for line in lines[2:]]
        if index >= size:
            completeness.append("place %d lies beyond the checkpoint" % index)
        elif lines[:2] != ["c2sp.org/tlog-proof@v1", "index %d" % index] or proof_note != note:
            other = read_head(open_note(proof_note, keys)[0])
            if other[1] > size:
                completeness.append("the proof of place %d knows a newer checkpoint" % index)
            else:
                integrity.append("the proof of place %d is not of this checkpoint" % index)
        elif root_from(leaf, index, size, path) != root:
            integrity.append("the proof of place %d does not lead to the root" % index)

    facts = [json.loads(line) for line in text("facts.ndjson").splitlines()]
    hashes = [leaf_hash(fact) for fact in facts]
    wanted = [leaf for _, leaf in places]
    if hashes != wanted:
        missing = [leaf for leaf in wanted if leaf not in hashes]
        extra = [digest for digest in hashes if digest not in wanted]
        if extra:
            integrity.append("%d facts are not what was sealed" % len(extra))
        if len(missing) > len(extra):
            completeness.append("%d facts are missing" % (len(missing) - len(extra)))
        order = [wanted.index(digest) for digest in hashes if digest in wanted]
        if order != sorted(order):
            integrity.append("the facts stand in another order")
    elif len(facts) < manifest["facts"]:
        completeness.append("the manifest speaks of %d facts, %d are here" % (manifest["facts"], len(facts)))

    for file in manifest["files"]:
        if file["name"] not in names:
            completeness.append("%s is missing" % file["name"])
        elif file["name"] != "facts.ndjson" or hashes == wanted:
            if hashlib.sha256(pack.read(file["name"])).hexdigest() != file["sha256"]:
                integrity.append("%s is not what was packed" % file["name"])
    return integrity, completeness


def main():
    integrity, completeness = check(sys.argv[1], sys.argv[2:])
    for name, findings in (("integrity", integrity), ("completeness", completeness)):
        for finding in findings:
            print("%s: %s" % (name, finding))
        print("%s %s" % (name, "broken" if findings else "holds"))
    sys.exit(1 if integrity or completeness else 0)


if __name__ == "__main__":
    main()
