"""Jobs that keep the processor busy, and the files that they work on: for local.py and counted.py."""
import shutil
import subprocess
from dataclasses import dataclass


@dataclass
class Job:
    name: str
    program: str
    # A short run of the same program, and the one that is measured.
    short: list
    busy: list


def relay(pagein, original, profile, relaid):
    """Relays; what pagein leaves as it was, for a reason that it prints (exit status 126), is compared as it was."""
    done = subprocess.run([pagein, "relayout", original, "--profile", profile, "-o", relaid], stdout=subprocess.DEVNULL)
    if done.returncode == 126:
        shutil.copy(original, relaid)
    else:
        done.check_returncode()


def make_files(directory, scale=1):
    """A repository and a file of numbers; a larger scale makes smaller ones."""
    lines = [
        f"git init -q r && cd r && git config user.name n && git config user.email e && "
        f"for i in $(seq 1 {60 // scale}); do seq $i 7 $((i * 900)) > f$((i % 9)); git add .; git commit -qm $i; done",
        f"seq 1 {900000 // scale} > numbers",
    ]
    for line in lines:
        subprocess.run(line, shell=True, check=True, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def all_jobs(scale=1):
    python = (f"d = {{}}\nfor i in range({700000 // scale}):\n    d[i % 1013] = d.get(i % 977, 0) + len(str(i))\n"
              "print(sum(d.values()))")
    perl = f"my %h; for my $i (1..{900000 // scale}) {{ $h{{$i % 1013}} .= 'x' if $i =~ /7$/; }} print scalar keys %h"
    return [
        Job("python3.11, a loop", "/usr/bin/python3.11", ["-c", "print(sum(len(str(i)) for i in range(9)))"], ["-c", python]),
        Job("zstd -9", "/usr/bin/zstd", ["-9", "-c", "r/f1"], ["-9", "-c", "numbers"]),
        Job("git log -p", "/usr/bin/git", ["-C", "r", "log", "-p", "-1"], ["-C", "r", "log", "-p", "--stat"]),
        Job("perl, a loop", "/usr/bin/perl", ["-e", "print join(',', map { $_ * 2 } 1..9)"], ["-e", perl]),
    ]
