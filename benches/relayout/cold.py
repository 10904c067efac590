#!/usr/bin/env python3
"""Page faults in the program's code at a start from a cold page cache, original against relaid.

    benches/relayout/cold.py PAGEIN [ROUNDS] [--only NAME] [NAME=PATH]...

PAGEIN is the command; NAME=PATH is a program that is not in PATH. For each program the profile of the measured job, and that of another job of
it, make the relaid files. They lie on a file system of their own (ext4 on a loop device), whose read-ahead is set: 128 kB, which is what
Linux sets for disks, and none. Before each start the file is dropped from the page cache. perf lists every page fault (software events); those
whose address lies in an executable mapping of the program count; "read" are those among them that had to wait for the device. Medians.
Needs root, perf, losetup, mkfs.ext4.
"""
import os, re, signal, statistics, subprocess, sys, tempfile

sys.dont_write_bytecode = True
import jobs

pagein = os.path.abspath(sys.argv[1])
rounds = next((int(word) for word in sys.argv[2:] if word.isdigit()), 5)
only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
# Managers of versions put another python before Debian's.
paths = {"python3.11": "/usr/bin/python3.11"} | dict(word.split("=", 1) for word in sys.argv[2:] if "=" in word)
null = subprocess.DEVNULL
READ_AHEAD = [("128 kB", 256), ("none", 0)]  # in sectors of 512 bytes
FILES = """printf 'import os\\nprint(os.name, 1 == None)\\n' > a.py; printf 'x = [1,2]\\nfor i in x: print(i)\\n' > b.py
echo 'message(STATUS x)' > a.cmake; printf 'foreach(i RANGE 3)\\n math(EXPR n "2*${i}")\\nendforeach()\\n' > b.cmake
git init -q . && git config user.name n && git config user.email e && git add . && git commit -qm c"""
# Program, the measured job, another one.
JOBS = [
    ("git", ["status"], ["log", "-1"]),
    ("ruff", ["check", "--no-cache", "--isolated", "a.py"], ["check", "--no-cache", "--isolated", "b.py"]),
    ("uv", ["--version"], ["cache", "dir", "--no-cache"]),
    ("cmake", ["-P", "a.cmake"], ["-P", "b.cmake"]),
    ("gdb", ["-batch", "-nx"], ["-batch", "-nx", "-ex", "print 1"]),
    ("python3.11", ["-S", "-c", "1"], ["-S", "-m", "json.tool", "--help"]),
]


def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, **options).stdout.decode()


def elf_in_path(name):
    for directory in os.environ["PATH"].split(":"):
        path = os.path.realpath(os.path.join(directory, name))
        if os.path.isfile(path) and open(path, "rb").read(4) == b"\x7fELF":
            return path
    return None


def evict(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def faults(program, args, work):
    """Faults in the program's code: all, and those that read from the device."""
    evict(program)
    data = os.path.join(work, "perf.data")
    record = ["perf", "record", "-q", "-N", "-e", "page-faults", "-e", "major-faults", "-c", "1", "-d", "-o", data, "--"]
    subprocess.run([*record, program, *args], cwd=work, stdin=null, stdout=null, stderr=null)
    text = run("perf", "script", "-i", data, "--show-mmap-events", "-F", "pid,event,addr", stderr=null)
    # Forks count with the mappings of the program that they are of; what else is executed has none of this name.
    code = []
    count = {"page-faults": 0, "major-faults": 0}
    for line in text.splitlines():
        mapped = re.search(r"MMAP2 .*\[(0x[0-9a-f]+)\((0x[0-9a-f]+)\).*: (\S+) (/.*)$", line)
        if mapped and mapped[4] == program and "x" in mapped[3]:
            code.append((int(mapped[1], 16), int(mapped[1], 16) + int(mapped[2], 16)))
        event = re.search(r"(page-faults|major-faults): +([0-9a-f]+)", line)
        if event and any(start <= int(event[2], 16) < end for start, end in code):
            count[event[1]] += 1
    return count["page-faults"], count["major-faults"]


def measure(work, device, mount):
    ratios = {}
    for name, args, other in JOBS:
        if only not in name:
            continue
        source = paths.get(name) or elf_in_path(name)
        if not source:
            print(f"{name} is not here", file=sys.stderr)
            continue
        files = {"shipped": os.path.join(mount, name)}
        subprocess.run(["cp", "-L", source, files["shipped"]], check=True)
        for kind, job in (("same job profiled", args), ("another job", other)):
            profile, files[kind] = os.path.join(work, "profile"), os.path.join(mount, f"{name}.{kind.split()[0]}")
            subprocess.run([pagein, "profile", "-o", profile, "--", files["shipped"], *job], cwd=work, stdout=null, stderr=null)
            jobs.relay(pagein, files["shipped"], profile, files[kind])
        for shown, sectors in READ_AHEAD:
            subprocess.run(["blockdev", "--setra", str(sectors), device], check=True)
            cells = []
            for kind, file in files.items():
                counts = [faults(file, args, work) for _ in range(rounds)]
                all_faults, read = (statistics.median(column) for column in zip(*counts))
                cells += [f"{all_faults:.0f}", f"{read:.0f}"]
                ratios.setdefault((shown, kind), []).append((all_faults, read))
            print(f"| {name} {' '.join(args)} | {shown} | {' | '.join(cells)} |", flush=True)
        for file in files.values():
            os.remove(file)
    for (shown, kind), values in ratios.items():
        if kind == "shipped":
            continue
        pairs = list(zip(ratios[shown, "shipped"], values))
        both = [statistics.geometric_mean(max(before[n], 1) / max(after[n], 1) for before, after in pairs) for n in (0, 1)]
        print(f"read-ahead {shown}, {kind}: {both[0]:.2f} times fewer faults in code, {both[1]:.2f} times fewer that read (geometric means)")


# The loop device has to go, whatever ends this.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
work = tempfile.mkdtemp()
image, mount = os.path.join(work, "image"), os.path.join(work, "mount")
os.mkdir(mount)
subprocess.run(FILES, shell=True, check=True, cwd=work, stdout=null, stderr=null)
with open(image, "wb") as file:
    file.truncate(512 << 20)
run("mkfs.ext4", "-q", image)
device = run("losetup", "--find", "--show", image).strip()
print("| job | read-ahead | shipped: faults in code | read | same job profiled: faults | read | another job: faults | read |")
print("|---|---|---|---|---|---|---|---|")
try:
    run("mount", device, mount)
    try:
        measure(work, device, mount)
    finally:
        run("umount", mount)
finally:
    run("losetup", "--detach", device)
run("rm", "-rf", work)
