#!/usr/bin/env python3
"""Steady speed: CPU time of jobs that keep the processor busy, original against relaid.

    benches/relayout/local.py PAGEIN [ROUNDS] [own] [--only WORDS]

PAGEIN is the command. For each job a profile of a short run of the same program makes the relaid file; with "own" that of
the measured job. Runs alternate, the first of a pair by turns; the figures are the median of the pairs' ratios of user + system time with
the interval in which that median lies with 95 % probability (from the order of the ratios), and the ratio of the quickest runs.
counted.py does not depend on who else uses the machine.
"""
import os, resource, statistics, subprocess, sys, tempfile

sys.dont_write_bytecode = True
import jobs

pagein = os.path.abspath(sys.argv[1])
rounds = next((int(word) for word in sys.argv[2:] if word.isdigit()), 21)
only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
own = "own" in sys.argv[2:]
work = tempfile.mkdtemp()
null = subprocess.DEVNULL

jobs.make_files(work)


def cpu(program, args):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run([program, *args], cwd=work, stdin=null, stdout=subprocess.PIPE, stderr=null)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, out.stdout


def median_within(ratios):
    """The median and its interval: of n values, those sqrt(n) ranks away from the middle."""
    ordered, reach = sorted(ratios), round(len(ratios) ** 0.5)
    middle = len(ordered) // 2
    return ordered[middle], ordered[max(middle - reach, 0)], ordered[min(middle + reach, len(ordered) - 1)]


print("| job | original, ms of CPU | relaid | ratio | within | of the quickest |")
print("|---|---|---|---|---|---|")
for job in jobs.all_jobs():
    if only not in job.name:
        continue
    name = os.path.basename(job.program)
    original, relaid, profile = (os.path.join(work, kind + name) for kind in ("original-", "relaid-", "profile-"))
    subprocess.run(["cp", job.program, original], check=True)
    profiled = job.busy if own else job.short
    subprocess.run([pagein, "profile", "-o", profile, "--", original, *profiled], cwd=work, stdout=null, stderr=null)
    jobs.relay(pagein, original, profile, relaid)
    times = {original: [], relaid: []}
    for number in range(rounds):
        outputs = set()
        for program in list(times)[:: 1 if number % 2 else -1]:
            seconds, output = cpu(program, job.busy)
            times[program].append(seconds)
            outputs.add(output)
        assert len(outputs) == 1, job.name
    a, b = (statistics.median(times[program]) for program in (original, relaid))
    ratio, low, high = median_within([y / x for x, y in zip(times[original], times[relaid])])
    quickest = min(times[relaid]) / min(times[original])
    print(f"| {job.name} | {a * 1e3:.0f} | {b * 1e3:.0f} | {ratio:.3f} | {low:.3f} to {high:.3f} | {quickest:.3f} |", flush=True)
subprocess.run(["rm", "-rf", work])
