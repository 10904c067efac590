#!/usr/bin/env python3
"""Steady speed that does not depend on who else uses the machine: instructions and simulated misses, original against relaid.

    benches/relayout/counted.py PAGEIN [short|own] [--only WORDS]

PAGEIN is the command. The jobs are those of local.py, smaller; "short" relays with the profile of a short run of the same program, "own"
with that of the measured job [default: both]. valgrind's cachegrind runs each twice: once with the first-level instruction
cache of the simulated machine and its branch predictor, once with "caches" of 64 and 1536 pages, which are its ITLB. Only what the program
file executes changes; libraries are counted with it, and are the same. Needs valgrind.
"""
import os, re, subprocess, sys, tempfile

sys.dont_write_bytecode = True
import jobs

pagein = os.path.abspath(sys.argv[1])
only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
kinds = [word for word in sys.argv[2:] if word in ("short", "own")] or ["short", "own"]
work = tempfile.mkdtemp()
null = subprocess.DEVNULL
# Hashes and addresses that are random change how many instructions run.
environment = {**os.environ, "PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}
MODELS = [
    ["--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64", "--branch-sim=yes"],
    ["--I1=262144,8,4096", "--D1=262144,8,4096", "--LL=6291456,12,4096", "--branch-sim=no"],
]


def simulate(program, args, model):
    command = ["setarch", "-R", "valgrind", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null", *model]
    done = subprocess.run([*command, program, *args], cwd=work, stdin=null, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    text = done.stderr.decode()
    counts = dict(re.findall(r"==\d+== (I +refs|I1 +misses|LLi misses|Mispredicts): +([\d,]+)", text))
    counts = {re.sub(" +", " ", name): int(value.replace(",", "")) for name, value in counts.items()}
    return counts, done.stdout


def figures(program, args):
    caches, output = simulate(program, args, MODELS[0])
    tlb, _ = simulate(program, args, MODELS[1])
    row = [caches["I refs"], caches["I1 misses"], caches["Mispredicts"], tlb["I1 misses"], tlb["LLi misses"]]
    return row, output


print("| job | profiled | instructions, millions | relaid / original | I1 misses, thousands | relaid | mispredicted, thousands | relaid "
      "| ITLB misses, thousands | relaid | of the second level | relaid |")
print("|---|---|---|---|---|---|---|---|---|---|---|---|")
jobs.make_files(work, scale=5)
for job in jobs.all_jobs(scale=5):
    if only not in job.name:
        continue
    name = os.path.basename(job.program)
    # Both names equally long: the program's name is copied and compared.
    original, relaid = os.path.join(work, "old", name), os.path.join(work, "new", name)
    os.makedirs(os.path.dirname(original), exist_ok=True)
    os.makedirs(os.path.dirname(relaid), exist_ok=True)
    subprocess.run(["cp", job.program, original], check=True)
    before, expected = figures(original, job.busy)
    for kind in kinds:
        profiled = job.busy if kind == "own" else job.short
        profile = os.path.join(work, "profile")
        subprocess.run([pagein, "profile", "-o", profile, "--", original, *profiled], cwd=work, stdout=null, stderr=null)
        jobs.relay(pagein, original, profile, relaid)
        after, output = figures(relaid, job.busy)
        assert output == expected, job.name
        pairs = " | ".join(f"{x / 1e3:.0f} | {y / 1e3:.0f}" for x, y in zip(before[1:], after[1:]))
        print(f"| {job.name} | {kind} | {before[0] / 1e6:.0f} | {after[0] / before[0]:.4f} | {pairs} |", flush=True)
subprocess.run(["rm", "-rf", work])
