#!/usr/bin/env python3
"""A second reader of pagein images, written from docs/format.md alone.

    second_reader.py IMAGE-DIRECTORY PROGRAM [MANIFEST-DIGEST]

Linked pages are checked against the relocations that PROGRAM itself lists.
Checks every digest and limit, puts the program together from `whole`, from `groups`, and from `paged`, and compares each with
PROGRAM and the pages of `hot` with theirs. Prints one JSON object; exit status 1 and one line on standard error if anything is wrong.

Needs the packages of tests/requirements.txt; tests/second_reader.sh installs them and runs this.
"""

import json
import re
import sys
from pathlib import Path

from blake3 import blake3
import zstandard

PAGE = 4096
RECORD_ROOM = 1024
MAX_FRAME_PAGES = 4096
MAX_MANIFEST = 64 << 20
MAX_FILE = 16 << 30
# What the branch filter takes for an instruction, up to its operand.
OPERAND = re.compile(rb"(?s)(?:[\xe8\xe9]|[\x89\x8b\x8d][\x05\x0d\x15\x1d\x25\x2d\x35\x3d]|\xff[\x15\x25])(?=(.{4}))")


class Damaged(Exception):
    """The image is not what the format says."""


def need(condition, why):
    if not condition:
        raise Damaged(why)


def bound(n):
    return n + n // 128 + 1024


def check(data, digest, what):
    found = blake3(data).digest()
    need(found == digest, f"{what}: digest {found.hex()}, not {digest.hex()}")


def unpack(packed, length, what, more=0):
    """Exactly one zstd frame of `length` bytes, and at most `more`."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    try:
        raw = decompressor.decompress(packed)
    except zstandard.ZstdError as error:
        raise Damaged(f"{what}: {error}") from error
    need(decompressor.eof and not decompressor.unused_data, f"{what}: not one zstd frame")
    need(length <= len(raw) <= length + more, f"{what}: {len(raw)} bytes, not {length}")
    return raw


def unfilter(page, number):
    """The page as it was before the branch filter."""
    page, at = bytearray(page), 0
    while found := OPERAND.search(page, at):
        at = found.end() + 4
        value = int.from_bytes(found[1], "little", signed=True)
        if -(2**26) <= value < 2**26:
            value = (value - (PAGE * number + at) + 2**26) % 2**27 - 2**26
            page[at - 4 : at] = value.to_bytes(4, "little", signed=True)
    return bytes(page)


class Record:
    """What a linked page comes with."""

    def __init__(self, fields):
        bitmap = fields.take(64)
        self.words = [i for i in range(512) if bitmap[i // 8] >> i % 8 & 1]
        head = fields.take(1)[0]
        self.zero = bool(head & 0x80)
        need(head & 0x7F <= 64, f"{fields.what}: {head & 0x7F} originals")
        self.originals, last = {}, -1
        for _ in range(head & 0x7F):
            word = int.from_bytes(fields.take(2), "little")
            need(last < word < 512, f"{fields.what}: original {word} after {last}")
            self.originals[word] = fields.take(8)
            last = word

    def file_form(self, page):
        page = bytearray(page)
        for word in self.words if self.zero else []:
            page[8 * word : 8 * word + 8] = bytes(8)
        for word, value in self.originals.items():
            page[8 * word : 8 * word + 8] = value
        return bytes(page)


class Fields:
    """Takes fields from a table."""

    def __init__(self, raw, what):
        self.raw, self.what, self.at = raw, what, 0

    def take(self, count):
        need(self.at + count <= len(self.raw), f"{self.what} ends at {len(self.raw)}")
        taken = self.raw[self.at : self.at + count]
        self.at += count
        return taken

    def uint(self, low, high, name):
        value = 0
        for index in range(10):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                break
        else:
            raise Damaged(f"{self.what}: {name} has more than 10 bytes")
        need(low <= value <= high, f"{self.what}: {name} is {value}, not {low} to {high}")
        return value

    def int(self, name):
        coded = self.uint(0, 2**64 - 1, name)
        return coded // 2 if coded % 2 == 0 else -(coded + 1) // 2

    def pages(self, low, high, total):
        expected, pages = 0, []
        for _ in range(self.uint(low, high, "a number of pages")):
            page = expected + self.int("a page")
            need(0 <= page < total, f"{self.what}: page {page} of {total}")
            pages.append(page)
            expected = page + 1
        return pages

    def stored(self, pages):
        """Stored length and digest of a frame or group of that many pages."""
        return self.uint(1, bound((PAGE + RECORD_ROOM) * pages), "a stored length"), self.take(32)

    def frames(self, pages):
        """Lists of pages, stored length, digest; `pages` are all of them in order."""
        frames, at = [], 0
        for _ in range(self.uint(0, len(pages), "a number of frames")):
            count = self.uint(1, MAX_FRAME_PAGES, "the pages of a frame")
            frames.append((pages[at : at + count], *self.stored(count)))
            at += count
        need(at == len(pages), f"{self.what}: frames of {at} pages, not {len(pages)}")
        return frames

    def end(self):
        need(self.at == len(self.raw), f"{self.what}: {len(self.raw) - self.at} bytes too many")


class Manifest:
    def __init__(self, data):
        need(len(data) >= 16, "no manifest")
        need(data[:7] == b"pagein\0", "not an image")
        need(data[7] == 3, f"format version {data[7]}")
        stored, length = (int.from_bytes(data[at : at + 4], "little") for at in (8, 12))
        need(stored <= MAX_MANIFEST and length <= MAX_MANIFEST, "the manifest is too large")
        need(16 + stored <= len(data), "the manifest is cut")
        self.stored = data[: 16 + stored]
        fields = Fields(unpack(data[16 : 16 + stored], length, "the manifest"), "the manifest")
        name = fields.take(fields.uint(1, 255, "the name's length")).decode("utf-8")
        need(name not in (".", "..") and "/" not in name, "the name")
        need(not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in name), "the name")
        self.name = name
        self.file_size = fields.uint(0, MAX_FILE, "the file size")
        self.file_digest = fields.take(32)
        self.total = total = -(-self.file_size // PAGE)
        self.machine = fields.uint(0, 65535, "the machine")
        flags = fields.uint(0, 3, "the flags")
        self.reads_self, self.page_files = bool(flags & 1), bool(flags & 2)
        self.traces = fields.uint(0, 1 << 20, "the traces")
        self.hot = fields.pages(0, total, total)
        need(len(set(self.hot)) == len(self.hot), "a page is hot twice")
        if self.traces > 1:
            self.touched = [fields.uint(0, self.traces, "touched") for _ in self.hot]
        else:
            self.touched = [self.traces] * len(self.hot)
        exec_frames = fields.uint(0, total, "the exec frames")
        self.hot_frames = fields.frames(self.hot)
        need(exec_frames <= len(self.hot_frames), "more exec frames than hot ones")
        self.exec_pages = [page for frame in self.hot_frames[:exec_frames] for page in frame[0]]
        is_hot, blocks = set(self.hot), {n // 64 for n in self.hot}
        rest = [n for n in range(total) if n not in is_hot]
        near = [n for n in rest if n // 64 in blocks]
        far = [n for n in rest if n // 64 not in blocks]
        self.rest_frames = fields.frames(near + far)
        self.sets = {}
        for which in ("groups", "paged")[: fields.uint(1, 2, "the group sets")]:
            index_len = fields.uint(0, 4 + bound(64 * total + 64), "an index's length")
            digest = fields.take(32)
            self.sets[which] = index_len, digest, fields.uint(0, 6184 * total, "the groups' size")
        self.not_linked = fields.uint(0, 8, "the linking")
        self.relocations, self.linked = 0, set()
        if self.not_linked == 0:
            self.relocations = fields.uint(0, 512 * total, "the relocations")
            self.read_linked(fields, total)
        fields.end()

    def read_linked(self, fields, total):
        end = 0
        for run in range(fields.uint(0, total, "the runs of linked pages")):
            start = end + fields.uint(0 if run == 0 else 1, total, "a gap")
            end = start + fields.uint(1, total, "a run")
            need(end <= total, f"linked page {end - 1} of {total}")
            self.linked.update(range(start, end))


class Image:
    def __init__(self, directory, pinned=None):
        self.directory = Path(directory)
        self.frames_checked = 0
        # Linked pages, by number: what a program loaded at address 0 has, and which words are relocated.
        self.in_linked_form = {}
        hot = self.object("hot")
        self.manifest = Manifest(hot)
        if pinned:
            check(self.manifest.stored, bytes.fromhex(pinned), "the manifest")

    def object(self, name):
        return (self.directory / name).read_bytes()

    def open_frames(self, data, frames, what, unpack):
        """Page -> bytes of frames or groups that lie one behind the other in `data`."""
        at, pages = 0, {}
        for number, frame in enumerate(frames):
            length = frame[1]
            pages.update(self.open_frame(data[at : at + length], frame, f"{what} {number}", unpack))
            at += length
        need(at == len(data), f"{what}: {len(data)} bytes, not {at}")
        return pages

    def open_frame(self, stored, frame, what, unpack):
        numbers, length, digest = frame
        need(len(stored) == length, f"{what} has {len(stored)} bytes, not {length}")
        check(stored, digest, what)
        linked = [page for page in numbers if page in self.manifest.linked]
        raw = unpack(stored, PAGE * len(numbers), what, RECORD_ROOM * len(linked))
        self.frames_checked += 1
        pages = {page: unfilter(raw[i * PAGE : (i + 1) * PAGE], page) for i, page in enumerate(numbers)}
        fields = Fields(raw[PAGE * len(numbers) :], f"the records of {what}")
        for page in linked:
            record = Record(fields)
            form = pages[page], record.words
            need(self.in_linked_form.setdefault(page, form) == form, f"{what}: page {page} is linked otherwise elsewhere")
            pages[page] = record.file_form(pages[page])
        fields.end()
        return pages

    def stream(self, name, frames):
        """The pages of `hot` or `whole`, whose frames are pieces of one zstd frame."""
        data, head = self.object(name), self.manifest.stored
        need(data.startswith(head), f"{name} has another manifest")
        decompressor = zstandard.ZstdDecompressor().decompressobj()

        def unpack_next(stored, length, what, more):
            try:
                raw = decompressor.decompress(stored)
            except zstandard.ZstdError as error:
                raise Damaged(f"{what}: {error}") from error
            need(length <= len(raw) <= length + more, f"{what}: {len(raw)} bytes, not {length}")
            return raw

        pages = self.open_frames(data[len(head) :], frames, name, unpack_next)
        need(name != "whole" or not frames or decompressor.eof, "whole: its zstd frame does not end")
        return pages

    def groups(self, which):
        """The pages of `groups` or `paged`."""
        m = self.manifest
        index_len, digest, size = m.sets[which]
        index = self.object(which + ".index")
        need(len(index) == index_len, f"{which}.index has {len(index)} bytes, not {index_len}")
        check(index, digest, which + ".index")
        need(len(index) >= 4, f"{which}.index is cut")
        length = int.from_bytes(index[:4], "little")
        need(length <= 64 * m.total + 64, f"{which}.index is too large")
        fields = Fields(unpack(index[4:], length, which + ".index"), which + ".index")
        groups = []
        for _ in range(fields.uint(0, m.total, "the number of groups")):
            pages = fields.pages(1, MAX_FRAME_PAGES, m.total)
            groups.append((pages, *fields.stored(len(pages))))
        fields.end()
        listed = [page for group in groups for page in group[0]]
        need(len(set(listed)) == len(listed), f"{which}.index has a page twice")
        need(sum(group[1] for group in groups) == size, f"{which}.index has other sizes than the manifest")
        if not m.page_files:
            return self.open_frames(self.object(which), groups, which, unpack)
        need(not (self.directory / which).exists(), f"{which} is there besides page files")
        pages = {}
        for group in groups:
            name = group[2].hex()
            pages.update(self.open_frame(self.object(f"pages/{name[:2]}/{name}"), group, name, unpack))
        return pages

    def join(self, pages, what):
        m = self.manifest
        need(sorted(pages) == list(range(m.total)), f"{what}: not every page is there")
        program = b"".join(pages[n] for n in range(m.total))
        need(not any(program[m.file_size :]), f"{what}: the last page is not filled up with zeros")
        program = program[: m.file_size]
        check(program, m.file_digest, what)
        return program


def relative_relocations(program):
    """File offset -> addend of the relative relocations of an ELF file, and the dynamic section with none of them left."""

    def word(at):
        return int.from_bytes(program[at : at + 8], "little")

    def half(at):
        return int.from_bytes(program[at : at + 2], "little")

    headers = [word(32) + half(54) * i for i in range(half(56))]
    kind = lambda at: int.from_bytes(program[at : at + 4], "little")
    loads = [(word(at + 16), word(at + 8), word(at + 32)) for at in headers if kind(at) == 1]

    def place(address):
        return next(address - start + offset for start, offset, size in loads if start <= address < start + size)

    dynamic = next(word(at + 8) for at in headers if kind(at) == 2)
    where = {}
    while word(dynamic) != 0:
        where[word(dynamic)] = dynamic + 8
        dynamic += 16
    value = {tag: word(at) for tag, at in where.items()}
    found, patched = {}, {}
    if 7 in value:
        at, count = place(value[7]), 0
        while count < value[8] // 24 and word(at + 24 * count + 8) == 8:
            found[place(word(at + 24 * count))] = word(at + 24 * count + 16)
            count += 1
        patched = {where[7]: value[7] + 24 * count, where[8]: value[8] - 24 * count}
        if 0x6FFFFFF9 in where:
            patched[where[0x6FFFFFF9]] = 0
    if 36 in value:
        patched[where[35]] = 0
        for at in range(place(value[36]), place(value[36]) + value[35], 8):
            entry = word(at)
            if entry % 2 == 0:
                here = [entry]
                following = entry + 8
            else:
                here = [following + 8 * (bit - 1) for bit in range(1, 64) if entry >> bit & 1]
                following += 8 * 63
            found.update((place(address), word(place(address))) for address in here)
    return found, patched


def check_linking(image, program):
    """Every word of the linked pages, against what the program itself says."""
    found, patched = relative_relocations(program)
    need(len(found) == image.manifest.relocations, f"{len(found)} relocations, not {image.manifest.relocations}")
    need({at // PAGE for at in {**found, **patched}} == image.manifest.linked, "other pages are linked")
    for page, (data, words) in image.in_linked_form.items():
        start = page * PAGE
        expected = bytearray(program[start : start + PAGE].ljust(PAGE, b"\0"))
        for at, value in {**found, **patched}.items():
            if at // PAGE == page:
                expected[at - start : at - start + 8] = value.to_bytes(8, "little")
        need(data == bytes(expected), f"linked page {page} has other words")
        need([start + 8 * w for w in words] == sorted(at for at in found if at // PAGE == page), f"page {page}: words")
    need(set(image.in_linked_form) == image.manifest.linked, "not every linked page is there")


def main(directory, program, pinned=None):
    image = Image(directory, pinned)
    m = image.manifest
    original = Path(program).read_bytes()
    hot, whole = image.stream("hot", m.hot_frames), image.stream("whole", m.hot_frames + m.rest_frames)
    need(list(hot) == m.hot and all(whole[page] == hot[page] for page in hot), "hot is not as in whole")
    ways = {"whole": whole, "groups": image.groups("groups")}
    if "paged" in m.sets:
        ways["paged"] = image.groups("paged")
    for what, pages in ways.items():
        need(image.join(pages, what) == original, f"{what}: not the program")
    if m.not_linked == 0:
        check_linking(image, original)
    print(
        json.dumps(
            {
                "name": m.name,
                "digest": blake3(m.stored).hexdigest(),
                "file_digest": m.file_digest.hex(),
                "file_bytes": m.file_size,
                "machine": m.machine,
                "reads_self": m.reads_self,
                "page_files": m.page_files,
                "traces": m.traces,
                "pages_total": m.total,
                "hot_pages": list(zip(m.hot, m.touched)),
                "exec_pages": m.exec_pages,
                "page_in_linking": {"on": m.not_linked == 0, "pages": len(m.linked), "relocations": m.relocations},
                "frames_checked": image.frames_checked,
                "rebuilt": list(ways),
            }
        )
    )


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (Damaged, OSError, UnicodeDecodeError, ValueError) as error:
        sys.exit(f"second_reader: {error}")
