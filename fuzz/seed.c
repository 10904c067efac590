// A small program for targets that read ELF files: a jump table, function pointers in data, relocations, unwind tables.
int state;

__attribute__((noinline)) int f(int x) {
    switch (x) {
        case 0: return 5;
        case 1: return state;
        case 2: return x * state;
        case 3: state++; return 7;
        case 4: return 9;
        default: return x;
    }
}

__attribute__((noinline)) int g(int x) { return f(x) + state; }

int (*table[])(int) = {f, g};

void _start(void) {
    for (;;) state += table[state & 1](state);
}
