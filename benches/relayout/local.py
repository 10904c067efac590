#!/usr/bin/env python3
"""Local runs, original against relaid: steady speed of jobs that keep the processor busy, and a start from a cold page cache.

    benches/relayout/local.py PAGEIN [ROUNDS [own]]

PAGEIN is the command. For each job a profile of a short run of the same program makes the relaid file; with "own" that of
the measured job. Steady: runs alternate, the first of a pair by turns; the figures are the median of the pairs' ratios of user +
system time, and the ratio of the quickest runs. Cold: the file alone is dropped from the page cache (POSIX_FADV_DONTNEED), then
the program starts; page faults are the kernel's count, of everything that the process does (the kernel maps 16 pages at a fault).
"""
import os, resource, statistics, subprocess, sys, tempfile

pagein, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 11
own = "own" in sys.argv[3:]
work = tempfile.mkdtemp()
null = subprocess.DEVNULL


def shell(line):
    subprocess.run(line, shell=True, check=True, cwd=work, stdout=null, stderr=null)


jobs.make_files(work)


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


def cold(program, args):
    evict(program)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([program, *args], cwd=work, stdin=null, stdout=null, stderr=null)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    faults = after.ru_majflt + after.ru_minflt - before.ru_majflt - before.ru_minflt
    return after.ru_majflt - before.ru_majflt, faults


print("| job | original, ms of CPU | relaid | ratio | of the quickest | major faults at a cold start | relaid | all faults | relaid |")
print("|---|---|---|---|---|---|---|---|---|")
for name, installed, short, busy in jobs:
    original, profile = os.path.join(work, "original-" + os.path.basename(installed)), os.path.join(work, "p")
    relaid = os.path.join(work, "relaid-" + os.path.basename(installed))
    shell(f"cp {installed} {original}")
    job = busy if own else short
    subprocess.run([pagein, "profile", "-o", profile, "--", original, *job], cwd=work, stdout=null, stderr=null)
    shell(f"{pagein} relayout {original} --profile {profile} -o {relaid}")
    times = {original: [], relaid: []}
    for number in range(rounds):
        outputs = set()
        for program in list(times)[:: 1 if number % 2 else -1]:
            seconds, output = cpu(program, busy)
            times[program].append(seconds)
            outputs.add(output)
        assert len(outputs) == 1, name
    a, b = (statistics.median(times[program]) for program in (original, relaid))
    ratio = statistics.median(y / x for x, y in zip(times[original], times[relaid]))
    starts = [[cold(program, short) for _ in range(5)] for program in (original, relaid)]
    (fa, pa), (fb, pb) = ((statistics.median(f for f, _ in s), statistics.median(p for _, p in s)) for s in starts)
    print(f"| {name} | {a * 1e3:.0f} | {b * 1e3:.0f} | {ratio:.3f} | {min(times[relaid]) / min(times[original]):.3f} | {fa:.0f} | {fb:.0f} | {pa:.0f} | {pb:.0f} |", flush=True)
shell(f"rm -rf {work}")
