#!/usr/bin/env python3
"""Local runs, original against relaid: steady speed of jobs that keep the processor busy, and a start from a cold page cache.

    benches/relayout/local.py PAGEIN [ROUNDS]

PAGEIN is the command. For each job a profile of a short run of the same program makes the relaid file. Steady: runs alternate; the
figure is the ratio of the medians of user + system time. Cold: the file alone is dropped from the page cache (POSIX_FADV_DONTNEED),
then the program starts; pages read are what mincore(2) finds there afterwards, major faults are the kernel's count.
"""
import ctypes, mmap, os, resource, statistics, subprocess, sys, tempfile

pagein, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 11
work = tempfile.mkdtemp()
null = subprocess.DEVNULL
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def shell(line):
    subprocess.run(line, shell=True, check=True, cwd=work, stdout=null, stderr=null)


shell("git init -q r && cd r && git config user.name n && git config user.email e && "
      "for i in $(seq 1 60); do seq $i 7 $((i * 900)) > f$((i % 9)); git add .; git commit -qm $i; done")
shell("seq 1 900000 > numbers")
loop = "d = {}\nfor i in range(700000):\n    d[i % 1013] = d.get(i % 977, 0) + len(str(i))\nprint(sum(d.values()))"
jobs = [
    ("python3.11, a loop", "/usr/bin/python3.11", ["-c", "print(sum(len(str(i)) for i in range(9)))"], ["-c", loop]),
    ("zstd -9", "/usr/bin/zstd", ["-9", "-c", "r/f1"], ["-9", "-c", "numbers"]),
    ("git log -p", "/usr/bin/git", ["-C", "r", "log", "-p", "-1"], ["-C", "r", "log", "-p", "--stat"]),
    ("perl, a loop", "/usr/bin/perl", ["-e", "print join(',', map { $_ * 2 } 1..9)"],
     ["-e", "my %h; for my $i (1..900000) { $h{$i % 1013} .= 'x' if $i =~ /7$/; } print scalar keys %h"]),
]


def cpu(program, args):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run([program, *args], cwd=work, stdin=null, stdout=subprocess.PIPE, stderr=null)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, out.stdout


def evict(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def resident(path):
    """Pages of the file in the page cache."""
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    pages = (size + 4095) // 4096
    at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    vector = (ctypes.c_ubyte * pages)()
    assert libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), vector) == 0
    libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    os.close(fd)
    return sum(v & 1 for v in vector)


def cold(program, args):
    evict(program)
    # What the kernel does not let go of: somebody else has it mapped.
    kept = resident(program)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_majflt
    subprocess.run([program, *args], cwd=work, stdin=null, stdout=null, stderr=null)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_majflt - before, resident(program) - kept


print("| job | original, ms of CPU | relaid | ratio | major faults at a cold start | relaid | file pages read | relaid |")
print("|---|---|---|---|---|---|---|---|")
for name, installed, short, busy in jobs:
    original, profile = os.path.join(work, "original-" + os.path.basename(installed)), os.path.join(work, "p")
    relaid = os.path.join(work, "relaid-" + os.path.basename(installed))
    shell(f"cp {installed} {original}")
    subprocess.run([pagein, "profile", "-o", profile, "--", original, *short], cwd=work, stdout=null, stderr=null)
    shell(f"{pagein} relayout {original} --profile {profile} -o {relaid}")
    times = {original: [], relaid: []}
    for _ in range(rounds):
        outputs = set()
        for program in times:
            seconds, output = cpu(program, busy)
            times[program].append(seconds)
            outputs.add(output)
        assert len(outputs) == 1, name
    a, b = (statistics.median(times[program]) for program in (original, relaid))
    starts = [[cold(program, short) for _ in range(5)] for program in (original, relaid)]
    (fa, pa), (fb, pb) = ((statistics.median(f for f, _ in s), statistics.median(p for _, p in s)) for s in starts)
    print(f"| {name} | {a * 1e3:.0f} | {b * 1e3:.0f} | {b / a:.3f} | {fa:.0f} | {fb:.0f} | {pa:.0f} | {pb:.0f} |", flush=True)
shell(f"rm -rf {work}")
